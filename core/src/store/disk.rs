//! A store in a directory: one log per shard, a lock, and a thread that does what is due.

use super::entropy::Entropy;
use super::error::StoreError;
use super::identity::Identity;
use super::options::{MIN_SEGMENT, OnDamage, Options, SyncPolicy};
use super::plan::Group;
use super::records::Records;
use super::recovery::Recovery;
use super::reserve::{Reserve, RoomFs};
use super::retention::{Retained, Retention};
use super::segment::StoreId;
use super::shard_log::ShardLog;
use super::spare::Spare;
use super::writer::Home;
use super::{Bounds, MessageStore, PartitionBounds};
use crate::clock::Clock;
use crate::config::MAX_SHARDS;
use crate::error::ConfigError;
use crate::fork::Generation;
use crate::fs::{Fs, FsLock, RealFs};
use crate::sync::{AtomicBool, Mutex, Ordering};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often an idle log notes how far it is durable, and old segments are ended.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// How a [`DiskStore`] is opened.
///
/// ```
/// use slipring::store::{DiskStore, MessageStore, SyncPolicy};
///
/// # let scratch = tempfile::tempdir()?;
/// # let dir = scratch.path().join("messages");
/// let store = DiskStore::builder().shards(2).sync(SyncPolicy::Always).open(&dir)?;
/// assert_eq!(store.shards(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct DiskStoreBuilder {
    shards: Option<usize>,
    options: Options,
    clock: Clock,
    seed: Option<u64>,
    background: bool,
}

impl Default for DiskStoreBuilder {
    fn default() -> Self {
        Self {
            shards: None,
            options: Options::default(),
            clock: Clock::default(),
            seed: None,
            background: true,
        }
    }
}

impl DiskStoreBuilder {
    /// How many shards it has, 1..=64; by default as many as it was made with, and a new one 1. A
    /// store that exists is refused under another number.
    #[must_use]
    pub fn shards(self, shards: usize) -> Self {
        Self { shards: Some(shards), ..self }
    }

    /// When a message counts as stored.
    #[must_use]
    pub fn sync(mut self, policy: SyncPolicy) -> Self {
        self.options.sync = policy;
        self
    }

    /// What to do about damage at the end of a log.
    #[must_use]
    pub fn on_damage(mut self, on_damage: OnDamage) -> Self {
        self.options.on_damage = on_damage;
        self
    }

    /// Bytes after which a segment file is ended, 64 KiB..=1 GiB; 64 MiB by default. The disk has its
    /// room back by whole segments, so a shard keeps up to one more than its topics want; and opening
    /// after a crash reads about one. On a small disk all shards' together have at most an eighth of
    /// it.
    #[must_use]
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.options.segment_bytes = bytes;
        self
    }

    /// Age at which a segment file is ended, so that what is in it can expire though little is
    /// published; 21 hours by default.
    #[must_use]
    pub fn segment_age(mut self, age: Duration) -> Self {
        self.options.segment_age = age;
        self
    }

    /// Bytes of a segment that are reserved on the disk at once, so that a full disk is found before
    /// anything is written, and a sync need not write the file's length: 0..=1 GiB, 32 MiB by default,
    /// for each shard. Never more than a segment has; on a small disk, all shards' together have at
    /// most an eighth of it. With 0, each append reserves what it needs.
    ///
    /// With as much as a segment has, and [`SyncPolicy::Always`], segments are made full of zeros: the
    /// first when a store is made, which takes as long as writing it; others when the one before is
    /// half full and little is appended, so that there is up to one more for each shard. Syncs of
    /// much at once, up to what a segment has, then take about two thirds of the time. To lower
    /// `segment_bytes` to this has the same effect.
    #[must_use]
    pub fn preallocate_bytes(mut self, bytes: u64) -> Self {
        self.options.preallocate_bytes = bytes;
        self
    }

    /// Bytes on the disk that are kept free for what must go on when it is full: opening, retention,
    /// cursors and metadata. 0..=1 TiB, 64 MiB by default, and never more than an eighth of the disk; 0
    /// keeps nothing. They are taken with the first append. What finds the disk full has them given
    /// back, and nothing is appended until they could be taken again.
    #[must_use]
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.options.reserve_bytes = bytes;
        self
    }

    /// The clock that the ages of segments and the interval of syncs are measured with; the machine's
    /// by default.
    #[must_use]
    pub fn clock(self, clock: impl Into<Clock>) -> Self {
        Self { clock: clock.into(), ..self }
    }

    /// Makes what is random the same in every run, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Whether a thread does what is due; otherwise [`DiskStore::maintain`] is to be called.
    #[doc(hidden)]
    #[must_use]
    pub fn background(self, background: bool) -> Self {
        Self { background, ..self }
    }

    /// Records are seen by others before they are committed.
    #[must_use]
    pub(crate) fn shows_early(mut self) -> Self {
        self.options.shows_early = true;
        self
    }

    /// The boot of the machine, for tests of what happens in another one.
    #[doc(hidden)]
    #[must_use]
    pub fn boot(mut self, boot: u128) -> Self {
        self.options.boot = boot;
        self
    }

    /// Opens the store in the directory `dir`, or makes one there, with the directories above it.
    ///
    /// After a crash this is where it recovers, see [`DiskStore::recovery`]: blocks while it reads
    /// the newest segment of each shard, and the tables of the others, which takes a fraction of a
    /// second for a GiB of messages. A crash meanwhile does no harm.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] while it is open elsewhere; [`StoreError::Incompatible`] when it is no
    /// store, one of a later version, or one of another number of shards, or a setting is out of its
    /// range; [`StoreError::Damaged`] when what is needed to begin with does not verify, or is
    /// missing: nothing was changed then. [`StoreError::Full`] and [`StoreError::Io`] may be tried
    /// again; a full disk is no error as long as there is the room that is kept for it.
    pub fn open(mut self, dir: &Path) -> Result<DiskStore, StoreError> {
        if self.options.boot == 0 {
            self.options.boot = boot_of_this_machine();
        }
        self.open_on(Arc::new(RealFs::open(dir)?))
    }

    /// The same on any file system.
    #[doc(hidden)]
    pub fn open_on(self, fs: Arc<dyn Fs>) -> Result<DiskStore, StoreError> {
        self.check().map_err(|error| StoreError::Incompatible(error.to_string().into()))?;
        let lock = lock_directory(&*fs)?;
        let entropy = Entropy::new(self.seed);
        let identity = self.identity(&*fs, &entropy)?;
        let options = self.options.on_disk_of(fs.disk_bytes()?, identity.shards);
        let reserve = Reserve::open(&*fs, options.reserve_bytes)?;
        let open_shards = || -> Result<Vec<_>, StoreError> {
            let open = |shard| {
                ShardLog::open(Home {
                    fs: Arc::clone(&fs),
                    dir: PathBuf::from(format!("shard-{shard:03}")),
                    id: identity.id,
                    shard,
                    is_new: !identity.complete,
                    options,
                    spare: Spare::default(),
                    clock: self.clock.clone(),
                    entropy: Entropy::new(self.seed.is_some().then(|| entropy.next())),
                    log: entropy.next(),
                })
            };
            (0..identity.shards as usize).map(open).collect()
        };
        let shards = with_room(&reserve, open_shards)?;
        if !identity.complete {
            Identity { complete: true, ..identity }.store(&*fs)?;
        }
        let shared = Arc::new(Shared {
            id: identity.id,
            shards,
            room: RoomFs { fs, reserve: Arc::new(reserve) },
            options,
            clock: self.clock,
            generation: Generation::current(),
            stop: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        });
        let thread = if self.background {
            let shared = Arc::clone(&shared);
            let name = std::thread::Builder::new().name("slipring-store".to_owned());
            Some(name.spawn(move || shared.work())?)
        } else {
            None
        };
        Ok(DiskStore { shared, thread })
    }

    /// # Errors
    /// [`ConfigError::OutOfRange`].
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let Options { segment_bytes, preallocate_bytes, reserve_bytes, .. } = self.options;
        for (setting, value, min, max) in [
            ("shards", self.shards.unwrap_or(1) as u64, 1, MAX_SHARDS as u64),
            ("segment_bytes", segment_bytes, MIN_SEGMENT, 1 << 30),
            ("preallocate_bytes", preallocate_bytes, 0, 1 << 30),
            ("reserve_bytes", reserve_bytes, 0, 1 << 40),
        ] {
            if !(min..=max).contains(&value) {
                return Err(ConfigError::OutOfRange { setting, min, max });
            }
        }
        Ok(())
    }

    fn identity(&self, fs: &dyn Fs, entropy: &Entropy) -> Result<Identity, StoreError> {
        let asked = self.shards.map(|shards| shards as u32);
        if let Some(identity) = Identity::read(fs)? {
            if let Some(shards) = asked.filter(|shards| *shards != identity.shards) {
                let why = format!("it has {} shards, not {shards}", identity.shards);
                return Err(StoreError::Incompatible(why.into()));
            }
            return Ok(identity);
        }
        let is_shard = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("shard-");
        if fs.list(Path::new(""))?.iter().any(|entry| is_shard(&entry.name)) {
            return Err(StoreError::Incompatible("the file `store` is missing".into()));
        }
        let id = StoreId(u128::from(entropy.next()) << 64 | u128::from(entropy.next()));
        let identity = Identity { id, shards: asked.unwrap_or(1), complete: false };
        identity.store(fs)?;
        Ok(identity)
    }
}

/// The boot of this machine; 0 where the kernel does not tell.
pub(crate) fn boot_of_this_machine() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0)
}

/// A store in a directory: one segmented log per shard.
///
/// It has a thread, which syncs at the interval, and about every second notes how far idle logs are
/// durable. One process has a directory at a time; in the child of a fork all calls are refused.
///
/// Dropping it closes it: that syncs, and waits for the thread.
pub struct DiskStore {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    id: StoreId,
    shards: Vec<ShardLog>,
    room: RoomFs,
    options: Options,
    clock: Clock,
    generation: Generation,
    stop: AtomicBool,
    /// Until the store is closed.
    lock: Mutex<Option<Box<dyn FsLock>>>,
}

/// Does what finds the disk full once more, with the room that is kept for it.
fn with_room<T>(
    reserve: &Reserve,
    work: impl Fn() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    match work() {
        Err(StoreError::Full) => {
            reserve.release();
            work()
        }
        outcome => outcome,
    }
}

/// Makes the directory one broker's.
pub(crate) fn lock_directory(fs: &dyn Fs) -> Result<Box<dyn FsLock>, StoreError> {
    match fs.lock(Path::new("LOCK")) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(StoreError::Locked),
        outcome => Ok(outcome?),
    }
}

impl Shared {
    fn shard(&self, shard: usize) -> Result<&ShardLog, StoreError> {
        if self.generation.is_over() {
            return Err(StoreError::Forked);
        }
        self.shards.get(shard).ok_or(StoreError::Unknown)
    }

    /// The thread's work: syncs at the interval, and maintenance.
    fn work(&self) {
        let interval = match self.options.sync {
            SyncPolicy::Interval(interval) => Some(interval.max(Duration::from_millis(1))),
            _ => None,
        };
        let after = |pause: Duration| self.clock.now().saturating_add(pause);
        let mut next_sync = interval.map_or(Duration::MAX, after);
        let mut next_maintenance = after(MAINTENANCE);
        let mut failing = vec![false; self.shards.len()];
        // Relaxed: whoever sets it unparks this thread, which orders enough.
        while !self.stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            if now < next_sync.min(next_maintenance) {
                self.clock.park_until(Some(next_sync.min(next_maintenance)));
                continue;
            }
            if let Some(interval) = interval
                && now >= next_sync
            {
                next_sync = after(interval);
                self.each(&mut failing, |shard| shard.sync(u64::MAX).map(drop));
            }
            if now >= next_maintenance {
                next_maintenance = after(MAINTENANCE);
                self.each(&mut failing, |shard| self.maintain(shard));
            }
        }
    }

    fn maintain(&self, shard: &ShardLog) -> Result<(), StoreError> {
        with_room(&self.room.reserve, || shard.maintain())?;
        // What has become free on a full disk is for others first.
        if self.room.reserve.is_held() {
            // Relaxed: a hint.
            shard.prepare(&|| !self.stop.load(Ordering::Relaxed))?;
        }
        Ok(())
    }

    /// Gives back what is made of segments to come; whether there was any.
    fn give_up_spares(&self) -> bool {
        self.shards.iter().filter(|shard| shard.give_up_spare()).count() > 0
    }

    /// Those who append and commit are told what fails; here it is said once.
    fn each(&self, failing: &mut [bool], work: impl Fn(&ShardLog) -> Result<(), StoreError>) {
        for (shard, failing) in self.shards.iter().zip(failing) {
            match work(shard) {
                Ok(()) => *failing = false,
                Err(error) if !*failing => {
                    tracing::warn!(target: "slipring", "{error}");
                    *failing = true;
                }
                Err(_) => {}
            }
        }
    }
}

impl DiskStore {
    /// How to open one.
    pub fn builder() -> DiskStoreBuilder {
        DiskStoreBuilder::default()
    }

    /// Tells the store from all others.
    #[doc(hidden)]
    pub fn id(&self) -> u128 {
        self.shared.id.0
    }

    pub(crate) fn on_damage(&self) -> OnDamage {
        self.shared.options.on_damage
    }

    /// What opening found in each shard.
    pub fn recovery(&self) -> Vec<Recovery> {
        self.shared.shards.iter().map(|shard| shard.recovery().clone()).collect()
    }

    /// Does what the store's own thread does about every second.
    #[doc(hidden)]
    pub fn maintain(&self) -> Result<(), StoreError> {
        self.shared.shards.iter().try_for_each(|shard| self.shared.maintain(shard))
    }

    /// The directory, for what is beside messages and goes on when the disk is full.
    pub(crate) fn directory(&self) -> Arc<dyn Fs> {
        Arc::new(self.shared.room.clone())
    }
}

impl MessageStore for DiskStore {
    fn shards(&self) -> usize {
        self.shared.shards.len()
    }

    fn append(&self, shard: usize, group: &Group<'_>) -> Result<(), StoreError> {
        let shard = self.shared.shard(shard)?;
        let reserve = &self.shared.room.reserve;
        let has_room = reserve.hold()? || (self.shared.give_up_spares() && reserve.hold()?);
        if !has_room {
            // What freeing room does not help with comes first.
            shard.check()?;
            return Err(StoreError::Full);
        }
        let mut outcome = shard.append(group);
        if matches!(outcome, Err(StoreError::Full)) && self.shared.give_up_spares() {
            outcome = shard.append(group);
        }
        if matches!(outcome, Err(StoreError::Full)) {
            reserve.release();
        }
        outcome
    }

    fn commit(&self, shard: usize, upto: u64) -> Result<(), StoreError> {
        self.shared.shard(shard)?.commit(upto)
    }

    fn sync(&self, shard: usize, upto: u64) -> Result<u64, StoreError> {
        self.shared.shard(shard)?.sync(upto)
    }

    fn bounds(&self, shard: usize) -> Result<Bounds, StoreError> {
        Ok(self.shared.shard(shard)?.bounds())
    }

    fn given_up(&self, shard: usize, sequences: Range<u64>) -> Result<u64, StoreError> {
        Ok(self.shared.shard(shard)?.given_up(sequences))
    }

    fn partitions(&self, shard: usize) -> Result<Vec<PartitionBounds>, StoreError> {
        Ok(self.shared.shard(shard)?.partitions())
    }

    fn read(
        &self,
        shard: usize,
        sequences: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        self.shared.shard(shard)?.read(sequences, max_bytes, into)
    }

    fn read_partition(
        &self,
        shard: usize,
        partition: u32,
        offsets: Range<u64>,
        max_bytes: usize,
        into: &mut Records,
    ) -> Result<(), StoreError> {
        self.shared.shard(shard)?.read_partition(partition, offsets, max_bytes, into)
    }

    fn sequence_at(&self, shard: usize, time_us: u64) -> Result<u64, StoreError> {
        self.shared.shard(shard)?.sequence_at(time_us)
    }

    fn retain(
        &self,
        shard: usize,
        now_us: u64,
        retention: &dyn Fn(u32) -> Retention,
    ) -> Result<Retained, StoreError> {
        let shard = self.shared.shard(shard)?;
        with_room(&self.shared.room.reserve, || shard.retain(now_us, retention))
    }

    fn stored_bytes(&self, shard: usize) -> Result<u64, StoreError> {
        Ok(self.shared.shard(shard)?.stored_bytes())
    }

    fn close(&self) -> Result<(), StoreError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let closed = |shard| self.shared.shard(shard)?.close();
        // Every shard is closed, also when one fails.
        let outcomes: Vec<_> = (0..self.shards()).map(closed).collect();
        self.shared.lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        outcomes.into_iter().collect()
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        if self.shared.generation.is_over() {
            // The thread is not in this process, and the files are the parent's.
            return;
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!(target: "slipring", "the store's thread panicked");
            }
        }
        if let Err(error) = self.close() {
            tracing::warn!(target: "slipring", "closing the store: {error}");
        }
    }
}

impl fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore").field("shards", &self.shared.shards).finish_non_exhaustive()
    }
}
