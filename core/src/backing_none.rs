//! What the models have in place of [`backing`](crate::backing): logs that nothing backs.

use crate::error::StoreFault;
use crate::interest::Interest;
use crate::kept::KeptRecord;
use crate::message::Context;
use std::collections::VecDeque;
use std::ops::Range;

#[derive(Debug)]
pub(crate) enum Backing {}

#[derive(Debug, Default)]
pub(crate) struct Recalled;

#[derive(Debug)]
pub(crate) enum Recall {
    Record(KeptRecord),
    Gone(u64),
}

impl Backing {
    pub(crate) fn low(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn most_removed(&self, _: Range<u64>, _: &Interest, _: &Context) -> u64 {
        match *self {}
    }

    pub(crate) fn append(&self, _: u64, _: &[u8]) -> Result<(), StoreFault> {
        match *self {}
    }

    pub(crate) fn read(&self, _: Range<u64>, _: &mut Recalled) -> Result<(), StoreFault> {
        match *self {}
    }
}

impl Recalled {
    pub(crate) fn take(&mut self, backing: &Backing, _: u64, _: u64) -> Result<Recall, StoreFault> {
        match *backing {}
    }

    pub(crate) fn take_all(&mut self) -> (VecDeque<(u64, KeptRecord)>, u64, u64) {
        (VecDeque::new(), 0, 0)
    }

    pub(crate) fn leave(&mut self, _: VecDeque<(u64, KeptRecord)>, _: u64) {}

    pub(crate) fn is_left_at(&self, _: u64) -> bool {
        false
    }
}
