//! Sources of records: the BPF programs, or a tracefs instance. Both produce the same records.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::SyncSender;

use results::block_trace::{CaptureMethod, Limitation, TracedDevice};
use zerocopy::FromZeros;

use super::chunk::Chunk;
use super::error::CaptureError;
use super::programs::{Programs, RingHandle, read_ring};
use super::record::{CallKey, Counters};
use super::request_flags::FlagBits;
use super::setup::Setup;
use super::tracefs::{self, Instance};
use super::{Method, privilege};

/// The source of a trace's records.
pub(crate) enum Source {
    Bpf(Box<Programs>),
    Tracefs(Instance, Vec<Limitation>),
}

impl Source {
    /// Starts the best source that the method and the kernel allow.
    pub(crate) fn start(
        method: Method,
        setup: &Setup,
        devices: &[TracedDevice],
    ) -> Result<Self, CaptureError> {
        let tracefs = |why: &str| {
            let instance = Instance::start(devices, u64::from(setup.ring_bytes))?;
            Ok(Self::Tracefs(instance, tracefs::limitations(why)))
        };
        if method == Method::Tracefs {
            return tracefs("recorded by tracefs, as asked");
        }
        match Programs::attach(setup) {
            Ok(programs) => Ok(Self::Bpf(Box::new(programs))),
            Err(error @ (CaptureError::Forbidden { .. } | CaptureError::Verifier { .. }))
                if method == Method::Best && privilege::lockdown().as_deref() != Some("confidentiality") =>
            {
                let why = match &error {
                    CaptureError::Forbidden { reason } => reason.clone(),
                    other => other.to_string(),
                };
                // If tracefs is forbidden too, report the reason against BPF.
                tracefs(&format!("recorded by tracefs, as {why}")).map_err(|_| error)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn method(&self) -> CaptureMethod {
        match self {
            Self::Bpf(_) => CaptureMethod::Bpf,
            Self::Tracefs(..) => CaptureMethod::Tracefs,
        }
    }

    pub(crate) fn limitations(&self) -> Vec<Limitation> {
        match self {
            Self::Bpf(programs) => programs.limitations.clone(),
            Self::Tracefs(_, limitations) => limitations.clone(),
        }
    }

    pub(crate) fn flags(&self) -> FlagBits {
        match self {
            Self::Bpf(programs) => programs.flags.clone(),
            Self::Tracefs(..) => tracefs::flag_bits(),
        }
    }

    /// The part that the reading thread owns.
    pub(crate) fn reader(&self) -> Result<Reader, CaptureError> {
        Ok(match self {
            Self::Bpf(programs) => Reader::Ring(programs.ring()?),
            Self::Tracefs(instance, _) => Reader::Pipe(Box::new(instance.reader()?)),
        })
    }

    /// Stops the source: no more records are made after this.
    pub(crate) fn stop(&mut self) {
        match self {
            Self::Bpf(programs) => programs.detach(),
            Self::Tracefs(instance, _) => instance.stop(),
        }
    }

    /// Makes the source send names again, of which user space has dropped some.
    pub(crate) fn send_names_again(&self) -> Result<(), CaptureError> {
        match self {
            Self::Bpf(programs) => programs.send_names_again(),
            // Its names are user space's own.
            Self::Tracefs(..) => Ok(()),
        }
    }

    pub(crate) fn counters(&self) -> Result<Counters, CaptureError> {
        match self {
            Self::Bpf(programs) => programs.counters(),
            Self::Tracefs(instance, _) => {
                let mut counters = Counters::new_zeroed();
                counters.lost = instance.lost();
                Ok(counters)
            }
        }
    }

    /// Number of times that the source dropped what it knew, at its memory limit.
    pub(crate) fn forgotten(&self) -> u64 {
        match self {
            Self::Bpf(_) => 0,
            Self::Tracefs(instance, _) => instance.forgotten(),
        }
    }

    /// Number of completions of requests whose issue was not seen, which are not told.
    pub(crate) fn unmatched(&self) -> u64 {
        match self {
            Self::Bpf(_) => 0,
            Self::Tracefs(instance, _) => instance.unmatched(),
        }
    }

    pub(crate) fn calls(&self) -> Result<Vec<(CallKey, &'static str, u64)>, CaptureError> {
        match self {
            Self::Bpf(programs) => programs.calls(),
            Self::Tracefs(..) => Ok(Vec::new()),
        }
    }
}

/// The reading end of a source.
pub(crate) enum Reader {
    Ring(RingHandle),
    Pipe(Box<tracefs::Reader>),
}

impl Reader {
    pub(crate) fn read(self, chunks: &SyncSender<Chunk>, stop: &AtomicBool) -> Result<(), CaptureError> {
        match self {
            Self::Ring(map) => read_ring(&map, chunks, stop),
            Self::Pipe(reader) => reader.read(chunks, stop),
        }
    }
}
