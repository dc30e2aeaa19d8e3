//! The thread of a pinned sequencer: does all the jobs of one shard.

use crate::config::WaitStrategy;
use crate::idle::Idle;
use crate::pin;
use crate::shard::Shard;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::threads;

/// A thread that sequences one shard, until this is dropped.
#[derive(Debug)]
pub(crate) struct SequencerThread {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl SequencerThread {
    pub(crate) fn start(shard: Arc<Shard>, cpu: usize) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (ready, wait_ready) = std::sync::mpsc::channel();
        let thread = threads::spawn(format!("slipring-shard-{cpu}"), move || {
            pin::pin_current_thread(cpu);
            shard.baton.become_sequencer();
            // The broker is not handed out before.
            let _ = ready.send(());
            let mut idle = Idle::new(WaitStrategy::Adaptive);
            shard.baton.sequence(
                |worked| {
                    if worked {
                        idle.rest(1);
                    } else if idle.pause() {
                        std::thread::park();
                        idle.rest(1);
                    }
                },
                || stopped.load(Ordering::Acquire),
            );
        })?;
        let _ = wait_ready.recv();
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for SequencerThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // An errand of its own may have dropped the last handle.
            if thread.thread().id() != std::thread::current().id() {
                drop(thread.join());
            }
        }
    }
}
