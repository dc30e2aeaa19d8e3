//! The disk: calls are counted, faults strike, and at a crash the seed decides.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;
use slipring::internals::{Fs, FsEntry, FsFile, FsLock, OpenHow};

use crate::fault::{Fault, Planned, down, io_error, no_space};
use crate::file::SimFile;
use crate::names::{Id, Names, ROOT};

/// Calls that are remembered.
const TRACE: usize = 400;

/// How a disk behaves, beside what is planned for it.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "made by whoever simulates")]
pub struct SimOptions {
    /// Whether a power cut may leave random bytes where some were being written. Bytes that were
    /// not being written stay as they are in any case.
    pub can_ruin: bool,
    /// Of 1,000 reads and writes, how many do only part of the work.
    pub short_per_mille: u16,
    /// Bytes the disk has room for; `None` for any number.
    pub capacity: Option<u64>,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self { can_ruin: true, short_per_mille: 20, capacity: None }
    }
}

/// A simulated disk and the operating system before it. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimFs {
    machine: Arc<Mutex<Machine>>,
}

#[derive(Debug, Clone)]
struct Machine {
    options: SimOptions,
    rng: Rng,
    names: Names,
    files: BTreeMap<Id, SimFile>,
    next_id: Id,
    locked: BTreeSet<Id>,
    plan: Vec<Planned>,
    calls: u64,
    is_down: bool,
    ruined: bool,
    failed_syncs: u64,
    trace: VecDeque<String>,
}

impl SimFs {
    /// An empty disk. The same seed and the same calls give the same disk, bit for bit.
    pub fn new(seed: u64, options: SimOptions) -> Self {
        let machine = Machine {
            options,
            rng: Rng::with_seed(seed),
            names: Names::new(),
            files: BTreeMap::new(),
            next_id: ROOT + 1,
            locked: BTreeSet::new(),
            plan: vec![],
            calls: 0,
            is_down: false,
            ruined: false,
            failed_syncs: 0,
            trace: VecDeque::new(),
        };
        Self { machine: Arc::new(Mutex::new(machine)) }
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Replaces the faults to come.
    pub fn plan(&self, plan: Vec<Planned>) {
        self.lock().plan = plan;
    }

    /// Calls since the start or the last restart.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// How much fits on the disk from now on.
    pub fn set_capacity(&self, capacity: Option<u64>) {
        self.lock().options.capacity = capacity;
    }

    /// Bytes of it that files have.
    pub fn used(&self) -> u64 {
        let machine = self.lock();
        let named = machine.names.named();
        let files = machine.files.iter().filter(|(id, _)| named.contains(id));
        files.map(|(_, file)| file.room()).sum()
    }

    /// The power goes now.
    pub fn power_cut(&self) {
        self.lock().go_down(Fault::PowerCut);
    }

    /// The process dies now; what it wrote stays with the operating system, synced or not.
    pub fn kill(&self) {
        self.lock().go_down(Fault::Kill);
    }

    /// Whether the machine is down, so that every call fails.
    pub fn is_down(&self) -> bool {
        self.lock().is_down
    }

    /// Whether the last power cut left random bytes.
    pub fn was_ruined(&self) -> bool {
        self.lock().ruined
    }

    /// Syncs of files that failed so far, so that bytes may be lost that were in memory alone.
    pub fn failed_syncs(&self) -> u64 {
        self.lock().failed_syncs
    }

    /// The machine as it comes up again, with what survived and no faults planned. If it was not
    /// down, the power goes first. The old one stays down for who still holds a file of it.
    #[must_use]
    pub fn restart(&self) -> Self {
        let mut old = self.lock();
        if !old.is_down {
            old.go_down(Fault::PowerCut);
        }
        let mut machine = old.clone();
        machine.is_down = false;
        machine.calls = 0;
        machine.plan.clear();
        machine.locked.clear();
        machine.note("restart".to_owned());
        Self { machine: Arc::new(Mutex::new(machine)) }
    }

    /// Another disk with the same bytes, names and seed.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { machine: Arc::new(Mutex::new(self.lock().clone())) }
    }

    /// The last calls, oldest first.
    pub fn trace(&self) -> Vec<String> {
        self.lock().trace.iter().cloned().collect()
    }

    /// What a program would read in a file. No call is counted, and nothing fails.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let machine = self.lock();
        let file = machine.files.get(&machine.find(path).ok()?)?;
        let mut bytes = vec![0; file.len() as usize];
        file.read(&mut bytes, 0);
        Some(bytes)
    }

    /// Gives a file that is there other bytes, durably: damage that no crash does.
    ///
    /// # Panics
    ///
    /// If there is no such file.
    pub fn replace(&self, path: &Path, bytes: &[u8]) {
        let mut machine = self.lock();
        let id = machine.find(path).expect("a file that is there");
        assert!(machine.files.insert(id, SimFile::of(bytes)).is_some(), "a file, not a directory");
    }

    fn call<T>(
        &self,
        what: std::fmt::Arguments<'_>,
        run: impl FnOnce(&mut Machine, Option<Fault>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut machine = self.lock();
        if machine.is_down {
            return Err(down());
        }
        let call = machine.calls;
        machine.calls += 1;
        let fault = machine.plan.iter().find(|planned| planned.hits(call)).map(|p| p.fault);
        let outcome = run(&mut machine, fault);
        let fault = fault.map(|fault| format!(" [{fault:?}]")).unwrap_or_default();
        let error = outcome.as_ref().err().map(|error| format!(" -> {error}")).unwrap_or_default();
        machine.note(format!("{call}: {what}{fault}{error}"));
        outcome
    }
}

impl Machine {
    fn note(&mut self, line: String) {
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    fn go_down(&mut self, fault: Fault) {
        if self.is_down {
            return;
        }
        self.is_down = true;
        self.note(format!("{fault:?}"));
        self.ruined = false;
        if fault == Fault::PowerCut {
            self.names.cut_power(&mut self.rng);
            let named = self.names.named();
            self.files.retain(|id, _| named.contains(id));
            for file in self.files.values_mut() {
                self.ruined |= file.cut_power(&mut self.rng, self.options.can_ruin);
            }
        }
    }

    /// Runs a change under a fault; `grows` if it can find the disk full.
    fn change<T>(
        &mut self,
        fault: Option<Fault>,
        grows: bool,
        apply: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        match fault {
            Some(fault @ (Fault::PowerCut | Fault::Kill)) => {
                if self.rng.bool() {
                    drop(apply(self));
                }
                self.go_down(fault);
                Err(down())
            }
            Some(Fault::Io) => {
                if self.rng.bool() {
                    drop(apply(self));
                }
                Err(io_error())
            }
            Some(Fault::NoSpace) if grows => Err(no_space()),
            Some(Fault::NoSpace | Fault::Short) | None => apply(self),
        }
    }

    /// Runs a call that changes nothing under a fault.
    fn look<T>(
        &mut self,
        fault: Option<Fault>,
        look: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        match fault {
            Some(fault @ (Fault::PowerCut | Fault::Kill)) => {
                self.go_down(fault);
                Err(down())
            }
            Some(Fault::Io) => Err(io_error()),
            Some(Fault::NoSpace | Fault::Short) | None => look(self),
        }
    }

    fn find(&self, path: &Path) -> io::Result<Id> {
        path.iter().try_fold(ROOT, |dir, name| {
            let entries = self.names.entries(dir).ok_or(io::ErrorKind::NotADirectory)?;
            Ok(*entries.get(name).ok_or(io::ErrorKind::NotFound)?)
        })
    }

    /// The directory that a path's last name is in, and that name.
    fn place(&self, path: &Path) -> io::Result<(Id, OsString)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let dir = self.find(path.parent().unwrap_or(Path::new("")))?;
        self.names.entries(dir).ok_or(io::ErrorKind::NotADirectory)?;
        Ok((dir, name))
    }

    fn new_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id - 1
    }

    fn create(&mut self, path: &Path) -> io::Result<Id> {
        let (dir, name) = self.place(path)?;
        if self.find(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = self.new_id();
        self.files.insert(id, SimFile::default());
        self.names.change(vec![(dir, name, Some(id))]);
        Ok(id)
    }

    fn file(&mut self, id: Id) -> &mut SimFile {
        self.files.get_mut(&id).expect("a file stays for who has it open")
    }

    /// How long a file can become.
    fn longest(&mut self, id: Id) -> u64 {
        let Some(capacity) = self.options.capacity else { return u64::MAX };
        let named = self.names.named();
        let others = self.files.iter().filter(|(other, _)| **other != id && named.contains(other));
        capacity.saturating_sub(others.map(|(_, file)| file.room()).sum())
    }

    fn grow(&mut self, id: Id, len: u64) -> io::Result<()> {
        if len > self.longest(id) && len > self.file(id).room() {
            return Err(no_space());
        }
        self.file(id).set_len(len);
        Ok(())
    }

    fn write(&mut self, fault: Option<Fault>, id: Id, bytes: &[u8], at: u64) -> io::Result<usize> {
        let len = bytes.len();
        let room = self.longest(id).max(self.file(id).room()).saturating_sub(at);
        let fits = room.min(len as u64) as usize;
        if fault == Some(Fault::NoSpace) || (fits == 0 && len > 0) {
            return Err(no_space());
        }
        let is_short = fault == Some(Fault::Short) || self.is_short();
        let count = match fault {
            Some(Fault::PowerCut | Fault::Kill | Fault::Io) => self.rng.usize(0..=fits),
            _ if is_short && fits > 1 => self.rng.usize(1..fits),
            _ => fits,
        };
        self.file(id).write(&bytes[..count], at);
        match fault {
            Some(fault @ (Fault::PowerCut | Fault::Kill)) => {
                self.go_down(fault);
                Err(down())
            }
            Some(Fault::Io) => Err(io_error()),
            _ => Ok(count),
        }
    }

    fn is_short(&mut self) -> bool {
        self.options.short_per_mille > 0 && self.rng.u16(0..1000) < self.options.short_per_mille
    }
}

impl Fs for SimFs {
    fn open(&self, path: &Path, how: OpenHow) -> io::Result<Box<dyn FsFile>> {
        let id = self.call(format_args!("open {} {how:?}", path.display()), |machine, fault| {
            if how == OpenHow::CreateNew {
                return machine.change(fault, true, |machine| machine.create(path));
            }
            machine.look(fault, |machine| {
                let id = machine.find(path)?;
                let is_file = machine.files.contains_key(&id);
                is_file.then_some(id).ok_or(io::ErrorKind::IsADirectory.into())
            })
        })?;
        let name = path.display().to_string();
        Ok(Box::new(OpenFile { fs: self.clone(), id, name, can_write: how != OpenHow::Read }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let what = format_args!("rename {} {}", from.display(), to.display());
        self.call(what, |machine, fault| {
            machine.change(fault, false, |machine| {
                let id = machine.find(from)?;
                let (from, to) = (machine.place(from)?, machine.place(to)?);
                machine.names.change(vec![(from.0, from.1, None), (to.0, to.1, Some(id))]);
                Ok(())
            })
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(format_args!("remove {}", path.display()), |machine, fault| {
            machine.change(fault, false, |machine| {
                let id = machine.find(path)?;
                if !machine.files.contains_key(&id) {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                let (dir, name) = machine.place(path)?;
                machine.names.change(vec![(dir, name, None)]);
                Ok(())
            })
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FsEntry>> {
        self.call(format_args!("list {}", dir.display()), |machine, fault| {
            machine.look(fault, |machine| {
                let id = machine.find(dir)?;
                let entries = machine.names.entries(id).ok_or(io::ErrorKind::NotADirectory)?;
                let entry = |(name, id): (&OsString, &Id)| {
                    let file = machine.files.get(id);
                    FsEntry {
                        name: name.clone(),
                        len: file.map_or(0, SimFile::len),
                        is_dir: file.is_none(),
                    }
                };
                let mut listed: Vec<FsEntry> = entries.iter().map(entry).collect();
                machine.rng.shuffle(&mut listed);
                Ok(listed)
            })
        })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.call(format_args!("create_dir {}", path.display()), |machine, fault| {
            machine.change(fault, true, |machine| {
                let (dir, name) = machine.place(path)?;
                if machine.find(path).is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                let id = machine.new_id();
                machine.names.add_dir(id);
                machine.names.change(vec![(dir, name, Some(id))]);
                Ok(())
            })
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.call(format_args!("sync_dir {}", path.display()), |machine, fault| {
            let dir = machine.find(path)?;
            match fault {
                Some(Fault::Io | Fault::NoSpace) => {
                    let Machine { names, rng, .. } = machine;
                    names.fail_sync(dir, rng);
                    Err(io_error())
                }
                fault => machine.look(fault, |machine| {
                    machine.names.sync(dir);
                    Ok(())
                }),
            }
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FsLock>> {
        let id = self.call(format_args!("lock {}", path.display()), |machine, fault| {
            machine.look(fault, |machine| {
                let id = match machine.find(path) {
                    Ok(id) => id,
                    Err(_) => machine.create(path)?,
                };
                let is_free = machine.locked.insert(id);
                is_free.then_some(id).ok_or(io::ErrorKind::WouldBlock.into())
            })
        })?;
        Ok(Box::new(HeldLock { fs: self.clone(), id }))
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(self.lock().options.capacity.unwrap_or(u64::MAX))
    }
}

struct OpenFile {
    fs: SimFs,
    id: Id,
    name: String,
    can_write: bool,
}

impl OpenFile {
    fn may_write(&self) -> io::Result<()> {
        self.can_write.then_some(()).ok_or(io::ErrorKind::PermissionDenied.into())
    }
}

impl FsFile for OpenFile {
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let what = format_args!("read {} {at}+{}", self.name, buf.len());
        self.fs.call(what, |machine, fault| {
            machine.look(fault, |machine| {
                let is_short = fault == Some(Fault::Short) || machine.is_short();
                let count = match buf.len() {
                    len if is_short && len > 1 => machine.rng.usize(1..len),
                    len => len,
                };
                Ok(machine.file(self.id).read(&mut buf[..count], at))
            })
        })
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        self.may_write()?;
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let what = format_args!("write {} {at}+{}", self.name, bytes.len());
        self.fs.call(what, |machine, fault| machine.write(fault, self.id, &bytes, at))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.fs.call(format_args!("sync_data {}", self.name), |machine, fault| match fault {
            Some(fault @ (Fault::Io | Fault::NoSpace)) => {
                let Machine { files, rng, failed_syncs, .. } = machine;
                *failed_syncs += 1;
                files.get_mut(&self.id).expect("it is open").fail_sync(rng);
                Err(if fault == Fault::Io { io_error() } else { no_space() })
            }
            fault => machine.look(fault, |machine| {
                machine.file(self.id).sync();
                Ok(())
            }),
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.may_write()?;
        self.fs.call(format_args!("set_len {} {len}", self.name), |machine, fault| {
            let grows = len > machine.file(self.id).len();
            machine.change(fault, grows, |machine| machine.grow(self.id, len))
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.fs.call(format_args!("len {}", self.name), |machine, fault| {
            machine.look(fault, |machine| Ok(machine.file(self.id).len()))
        })
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        self.may_write()?;
        self.fs.call(format_args!("allocate {} {at}+{len}", self.name), |machine, fault| {
            let new = machine.file(self.id).len().max(at + len);
            machine.change(fault, true, |machine| machine.grow(self.id, new))
        })
    }

    fn drop_cache(&self) -> io::Result<()> {
        self.fs.call(format_args!("drop_cache {}", self.name), |machine, fault| {
            machine.look(fault, |machine| {
                machine.file(self.id).drop_cache();
                Ok(())
            })
        })
    }
}

struct HeldLock {
    fs: SimFs,
    id: Id,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.fs.lock().locked.remove(&self.id);
    }
}

impl FsLock for HeldLock {}
