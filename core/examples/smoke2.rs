// diagnose: single publishes to one consumer; counts blocked and empties
use slipring::*;
use std::time::Instant;
fn main() {
    let policy: String = std::env::args().nth(1).unwrap_or("block".into());
    let pause: u32 = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(0);
    let n = 5_000_000u64;
    let broker = Broker::builder().memory_budget(1 << 20).build().unwrap();
    let cores = core_affinity::get_core_ids().unwrap();
    let topic = broker.topic("a/b").unwrap();
    for _ in 0..3 {
        let o = match policy.as_str() {
            "block" => Overflow::Block { timeout: None },
            "newest" => Overflow::DropNewest,
            _ => Overflow::DropOldest,
        };
        let mut sub =
            broker.subscription("a/*").overflow(o).wait(WaitStrategy::BusySpin).open().unwrap();
        let c1 = cores[1];
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let s2 = stop.clone();
        let h = std::thread::spawn(move || {
            core_affinity::set_for_current(c1);
            let mut idle = Idle::new(WaitStrategy::BusySpin);
            let mut got = 0u64;
            let mut polls = 0u64;
            let mut empties = 0u64;
            while got < n && !s2.load(std::sync::atomic::Ordering::Relaxed) {
                match sub.poll(64, |m| {
                    std::hint::black_box(m.payload()[0]);
                }) {
                    Ok(k) => {
                        got += k as u64;
                        polls += 1;
                        if k == 0 {
                            empties += 1
                        }
                        if pause == 0 {
                            idle.rest(k);
                        } else if k < 32 {
                            for _ in 0..pause {
                                std::hint::spin_loop()
                            }
                        }
                    }
                    Err(RecvError::Lagged(k)) => got += k,
                    Err(_) => break,
                }
            }
            (got, polls, empties)
        });
        core_affinity::set_for_current(cores[0]);
        let t = Instant::now();
        let p = [7u8; 64];
        let mut d = 0;
        for _ in 0..n {
            d += topic.publish(&p[..]).unwrap().dropped;
        }
        let dt = t.elapsed();
        stop.store(policy != "block", std::sync::atomic::Ordering::Relaxed);
        let (g, po, e) = h.join().unwrap();
        println!(
            "{policy} {pause}: {:.1} ns/publish dropped {d} got {g} polls {po} empties {e}",
            dt.as_nanos() as f64 / n as f64
        );
    }
}
