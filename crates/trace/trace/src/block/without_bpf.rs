//! In place of the BPF programs and their ring, for a build without the feature `bpf`: it needs no libbpf and no libelf,
//! and records by tracefs.

use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;

use results::block_trace::Limitation;

use super::chunk::Chunk;
use super::error::CaptureError;
use super::record::{CallKey, Counters};
use super::request_flags::FlagBits;
use super::setup::Setup;

/// Programs, which this build does not have.
pub(crate) struct Programs {
    pub limitations: Vec<Limitation>,
    pub flags: FlagBits,
    never: Infallible,
}

/// A handle of their ring.
pub(crate) type RingHandle = Infallible;

impl Programs {
    /// Refuses.
    pub(crate) fn attach(_setup: &Setup) -> Result<Self, CaptureError> {
        Err(CaptureError::Forbidden {
            reason: "this build of tidegate has no BPF programs; a build from source (`make build`) has them"
                .to_owned(),
        })
    }

    pub(crate) fn detach(&mut self) {
        match self.never {}
    }

    pub(crate) fn ring(&self) -> Result<RingHandle, CaptureError> {
        match self.never {}
    }

    pub(crate) fn counters(&self) -> Result<Counters, CaptureError> {
        match self.never {}
    }

    pub(crate) fn send_names_again(&self) -> Result<(), CaptureError> {
        match self.never {}
    }

    pub(crate) fn calls(&self) -> Result<Vec<(CallKey, &'static str, u64)>, CaptureError> {
        match self.never {}
    }
}

/// Never called, as there is no handle.
pub(crate) fn read_ring(
    ring: &RingHandle,
    _chunks: &SyncSender<Chunk>,
    _stop: &AtomicBool,
) -> Result<(), CaptureError> {
    match *ring {}
}
