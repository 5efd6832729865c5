//! Arguments shared by `tidegate trace record` and `top`: devices, capture method, memory.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trace::block::{CaptureError, DEFAULT_RING_BYTES, Method, Target};

use crate::quantity::parse_bytes;

/// The devices to trace and the capture method.
#[derive(Args, Debug)]
pub struct CaptureArguments {
    /// A device to trace; for a partition, its whole disk (repeatable) [default: the device of the current folder]
    #[arg(long, short = 'd', value_name = "DEVICE")]
    pub device: Vec<PathBuf>,
    /// A folder, to trace the device of its file system (repeatable)
    #[arg(long = "mountpoint", short = 'm', value_name = "DIRECTORY")]
    pub mountpoints: Vec<PathBuf>,
    /// Buffer between kernel and tracer, bytes, a power of two; increase it if records are lost
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value_t = DEFAULT_RING_BYTES)]
    pub ring: u64,
    /// Capture method
    #[arg(long, value_enum, default_value_t = CaptureMethodArgument::Best)]
    pub method: CaptureMethodArgument,
}

impl CaptureArguments {
    /// The devices and folders to trace; the current folder if none is given.
    pub fn targets(&self) -> Vec<Target> {
        let devices = self.device.iter().cloned().map(Target::Device);
        let mountpoints = self.mountpoints.iter().cloned().map(Target::Mountpoint);
        let given: Vec<Target> = devices.chain(mountpoints).collect();
        match given.is_empty() {
            true => vec![Target::Mountpoint(
                std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
            )],
            false => given,
        }
    }

    /// An error of the capture; where the device was a default, with the options that name one.
    pub fn explain(&self, error: CaptureError) -> anyhow::Error {
        let is_default = self.device.is_empty() && self.mountpoints.is_empty();
        let is_about_target = matches!(error, CaptureError::Target { .. });
        let error = anyhow::Error::new(error);
        match is_default && is_about_target {
            true => error.context("name the device with -m DIRECTORY or --device DEVICE; the default is that of the current folder"),
            false => error,
        }
    }
}

/// Capture methods.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CaptureMethodArgument {
    /// BPF, or tracefs where BPF is not permitted
    Best,
    /// BPF programs on tracepoints
    Bpf,
    /// A tracefs instance: finds files by block address; no generations, no home blocks of journal copies
    Tracefs,
}

impl From<CaptureMethodArgument> for Method {
    fn from(argument: CaptureMethodArgument) -> Self {
        match argument {
            CaptureMethodArgument::Best => Self::Best,
            CaptureMethodArgument::Bpf => Self::Bpf,
            CaptureMethodArgument::Tracefs => Self::Tracefs,
        }
    }
}
