//! Chunks: the last token recycles, after everything that was read; claims are disjoint.

use loom::sync::Arc;
use loom::thread;
use slipring::internals::{
    Appender, CHUNK_BYTES, Chunk, ClaimArea, FIRST_RECORD, Pins, Pool, watch_read, watch_write,
};
use slipring_loom_tests::check;

const RECORD: usize = (CHUNK_BYTES - FIRST_RECORD) / 4;

/// Two consumers give their tokens back, and the appender, or the log after it, its own; whoever is
/// last recycles, and the chunk is written again.
#[test]
fn a_chunk_is_written_again_only_after_it_was_read() {
    check(3, || {
        let pool = Pool::new(1 << 20);
        let mut appender = Appender::new(Arc::clone(&pool));
        assert!(appender.begin().is_some());
        let at = appender.room(64).unwrap() as usize;
        watch_write(at);
        appender.commit(64);
        let chunk = Chunk::of(at);
        chunk.grant(3);
        let consumers = [1, 2].map(|tokens| {
            thread::spawn(move || {
                let mut pins = Pins::default();
                for _ in 0..tokens {
                    pins.add(at);
                    watch_read(at);
                }
                pins.flush();
            })
        });
        appender.seal().unwrap().release(1);
        assert!(appender.begin().is_some());
        let again = appender.room(64).unwrap() as usize;
        // The same memory exactly if both consumers were done.
        watch_write(again);
        consumers.into_iter().for_each(|consumer| consumer.join().unwrap());
        assert_eq!(pool.in_use(), CHUNK_BYTES as u64, "one recycled, one in use");
        drop(appender);
        assert_eq!(pool.in_use(), 0);
    });
}

/// A message that was kept outlives the log's token; a token taken from one that is held counts.
#[test]
fn a_token_made_from_another_keeps_the_chunk() {
    check(3, || {
        let pool = Pool::new(1 << 20);
        let (chunk, at) = Pool::detached(&pool, 64).unwrap();
        let at = at as usize;
        watch_write(at);
        chunk.grant(1);
        let keeper = thread::spawn(move || {
            chunk.grant(1);
            chunk.release(1);
            watch_read(at);
            chunk.release(1);
        });
        chunk.release(1);
        let (_, again) = Pool::detached(&pool, 64).unwrap();
        watch_write(again as usize);
        keeper.join().unwrap();
        assert_eq!(pool.in_use(), CHUNK_BYTES as u64);
        Chunk::of(again as usize).release(1);
        assert_eq!(pool.in_use(), 0);
    });
}

/// Two threads claim over the end of a chunk, and one of the claims is never published.
#[test]
fn claims_are_disjoint_across_a_roll_over() {
    check(3, || {
        let pool = Pool::new(1 << 20);
        let area = Arc::new(ClaimArea::new(Arc::clone(&pool)));
        for _ in 0..2 {
            watch_write(area.claim(RECORD).unwrap().at() as usize);
        }
        let theirs = Arc::clone(&area);
        let other = thread::spawn(move || {
            let aborted = theirs.claim(RECORD).unwrap();
            watch_write(aborted.at() as usize);
            drop(aborted);
            let claim = theirs.claim(RECORD).unwrap();
            watch_write(claim.at() as usize);
            claim
        });
        let claim = area.claim(RECORD).unwrap();
        watch_write(claim.at() as usize);
        let second = area.claim(RECORD).unwrap();
        watch_write(second.at() as usize);
        let others = other.join().unwrap();
        let mut ats = [&claim, &second, &others].map(|claim| claim.at() as usize);
        ats.sort_unstable();
        assert!(ats[0] + RECORD <= ats[1] && ats[1] + RECORD <= ats[2], "disjoint");
        drop((claim, second, others, area));
        assert_eq!(pool.in_use(), 0, "every chunk comes back, once");
    });
}

/// Nobody has a chunk yet: both make one, and one of the two goes back.
#[test]
fn the_first_claims_agree_on_a_chunk() {
    check(3, || {
        let pool = Pool::new(1 << 20);
        let area = Arc::new(ClaimArea::new(Arc::clone(&pool)));
        let claims = [0, 1].map(|_| {
            let theirs = Arc::clone(&area);
            thread::spawn(move || theirs.claim(RECORD).unwrap())
        });
        let claims = claims.map(|claim| claim.join().unwrap());
        assert_eq!(claims[0].chunk(), claims[1].chunk());
        assert_ne!(claims[0].at(), claims[1].at());
        assert_eq!(pool.in_use(), CHUNK_BYTES as u64);
        drop((claims, area));
        assert_eq!(pool.in_use(), 0);
    });
}

/// A claim that is looked at while its chunk is replaced and let go.
#[test]
fn a_claimed_chunk_is_recycled_after_its_claims() {
    check(3, || {
        let pool = Pool::new(1 << 20);
        let area = Arc::new(ClaimArea::new(Arc::clone(&pool)));
        let first = area.claim(RECORD).unwrap();
        watch_write(first.at() as usize);
        for _ in 0..2 {
            drop(area.claim(RECORD).unwrap());
        }
        let theirs = Arc::clone(&area);
        let other = thread::spawn(move || {
            let at = first.at() as usize;
            watch_read(at);
            drop(first);
            // The last place of the first chunk, or one in the second.
            let claim = theirs.claim(RECORD).unwrap();
            watch_write(claim.at() as usize);
        });
        for _ in 0..2 {
            let claim = area.claim(RECORD).unwrap();
            watch_write(claim.at() as usize);
        }
        // Takes the first chunk again if it is free by now.
        let mut appender = Appender::new(Arc::clone(&pool));
        assert!(appender.begin().is_some());
        for _ in 0..4 {
            watch_write(appender.room(RECORD).unwrap() as usize);
            appender.commit(RECORD);
        }
        other.join().unwrap();
        drop((appender, area));
        assert_eq!(pool.in_use(), 0);
    });
}
