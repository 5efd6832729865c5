//! What `tidegate trace record` and `top` are both told: which devices, by which means, with how much memory.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trace::block::{DEFAULT_RING_BYTES, Method, Target};

use crate::quantity::parse_bytes;

/// Whose requests are seen, and how.
#[derive(Args, Debug)]
pub struct CaptureArguments {
    /// A device to trace; a partition stands for its disk (may be given several times)
    #[arg(
        long,
        short = 'd',
        value_name = "DEVICE",
        required_unless_present = "mountpoints"
    )]
    pub device: Vec<PathBuf>,
    /// A folder: the device of the file system that it is on (may be given several times)
    #[arg(long = "mountpoint", short = 'm', value_name = "FOLDER")]
    pub mountpoints: Vec<PathBuf>,
    /// Memory between kernel and tracer: a power of two; more when records are lost
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value_t = DEFAULT_RING_BYTES)]
    pub ring: u64,
    /// By which means requests are seen
    #[arg(long, value_enum, default_value_t = CaptureMethodArgument::Best)]
    pub method: CaptureMethodArgument,
}

impl CaptureArguments {
    /// The devices and folders.
    pub fn targets(&self) -> Vec<Target> {
        let devices = self.device.iter().cloned().map(Target::Device);
        let mountpoints = self.mountpoints.iter().cloned().map(Target::Mountpoint);
        devices.chain(mountpoints).collect()
    }
}

/// Means of seeing requests.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CaptureMethodArgument {
    /// BPF, and tracefs where that is forbidden
    Best,
    /// BPF programs on tracepoints
    Bpf,
    /// A tracefs instance: files by the places of their blocks, no generations, no journal's home blocks
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
