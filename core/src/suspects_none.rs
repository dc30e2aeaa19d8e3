//! What the models have in place of [`suspects`](crate::suspects): there are none without a directory.

use crate::error::StoreFault;
use crate::ledger::Grant;
use crate::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) struct Suspects {
    pub(crate) archive: Arc<Archive>,
}

/// There is none.
#[derive(Debug)]
pub(crate) enum Archive {}

impl Archive {
    pub(crate) fn moving(&self) {
        match *self {}
    }

    pub(crate) fn note_at_once(&self, _: u64, _: Vec<()>) -> Result<(), StoreFault> {
        match *self {}
    }
}

impl Suspects {
    pub(crate) fn has(&self, _: usize, _: u64) -> bool {
        match *self.archive {}
    }

    pub(crate) fn settle(&mut self, _: usize, _: u64) {
        match *self.archive {}
    }

    pub(crate) fn has_to_note(&self) -> bool {
        match *self.archive {}
    }

    pub(crate) fn take_notes(&mut self, _: Option<(usize, Grant)>) -> Vec<()> {
        match *self.archive {}
    }
}
