//! Figures of seeds/001 for MA-UBIFS relative to UBIFS on one device, as stated in its text. Figures that appear only in
//! charts are omitted.

use nand::Preset;

use crate::workload::Workload;

const MIB: u64 = 1 << 20;

/// Throughput relative to one device (section 4.3). For reads the text states only that no difference exceeded 4 %.
pub fn throughput(preset: Preset, devices: u32, record_bytes: u64, workload: Workload) -> Option<f64> {
    match (preset, devices, record_bytes, workload) {
        (Preset::Tlc, 2, 4096, written) if written.writes() => Some(1.045),
        (Preset::Tlc, 4, 4096, written) if written.writes() => Some(1.06),
        (Preset::Mlc, 2, 8192, Workload::Write) => Some(1.028),
        (Preset::Mlc, 2, 8192, Workload::RandomWrite) => Some(1.083),
        (Preset::Tlc, 2, bytes, Workload::Write) if bytes == 16 * MIB => Some(1.787),
        (Preset::Tlc, 4, bytes, Workload::Write) if bytes == 16 * MIB => Some(2.887),
        (Preset::Tlc, 4, bytes, Workload::RandomWrite) if bytes == 16 * MIB => Some(2.31),
        (Preset::Tlc, 4, bytes, Workload::Rewrite) if bytes == 16 * MIB => Some(2.47),
        (_, 2 | 4, _, Workload::Read | Workload::RandomRead) => Some(1.04),
        _ => None,
    }
}

/// Time to mount a new file system, relative to one device (section 4.2).
pub const fn mounting(devices: u32) -> Option<f64> {
    match devices {
        2 => Some(1.038),
        4 => Some(1.17),
        _ => None,
    }
}

/// Mean response time of an application, relative to one device (section 5.2; MLC). `web-browsing` is above 1 on two
/// devices, but its value appears only in a chart.
pub fn response(application: &str, devices: u32) -> Option<f64> {
    match (application, devices) {
        ("movie", 4) => Some(0.284),
        ("camera-video", 4) => Some(0.371),
        ("angry-bird", 4) => Some(0.554),
        ("google-map", 2) => Some(0.836),
        ("google-map", 4) => Some(0.818),
        _ => None,
    }
}
