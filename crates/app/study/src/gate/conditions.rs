//! Conditions that two studies must share for their speeds to be compared.

use results::nearest_f64;

use super::Stored;
use crate::plan::Device;

/// Memory sizes that differ by less are those of one machine; kernels reserve different parts of it.
const MEMORY_TOLERANCE: f64 = 0.05;

/// Conditions by which speeds of two studies can't be compared.
pub fn differences(baseline: Stored<'_>, measured: Stored<'_>) -> Vec<String> {
    let sides = [baseline, measured];
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "not set".to_owned(), |bytes| bytes.to_string());
    let environment = |value: fn(&crate::plan::Environment) -> Option<u64>| {
        sides.map(|side| bytes(value(&side.plan.environment)))
    };
    let host = |value: fn(&results::HostInfo) -> String| {
        sides.map(|side| side.records.first().map(|record| value(&record.host)))
    };
    let known = |name, values: [Option<String>; 2]| match values {
        [Some(before), Some(after)] => Some((name, [before, after])),
        _ => None,
    };
    let mut found = vec![
        ("device", sides.map(|side| device(&side.plan.environment.device))),
        ("size of the device", environment(|environment| environment.size)),
        ("dirty limit", environment(|environment| environment.dirty_limit)),
        ("time scale", sides.map(|side| side.state.time_scale.to_string())),
        ("kernel", sides.map(|side| side.state.kernel.clone())),
    ];
    found.extend(known("architecture", host(|host| host.machine.clone())));
    found.extend(known(
        "processor",
        host(|host| host.processor.clone().unwrap_or_default()),
    ));
    found.extend(known("number of processors", host(|host| host.cpus.to_string())));
    let memories = sides.map(|side| side.records.first().map(|record| record.host.memory_bytes));
    if let [Some(before), Some(after)] = memories {
        let distance = nearest_f64(before.abs_diff(after));
        if distance > nearest_f64(before) * MEMORY_TOLERANCE {
            found.push(("memory in bytes", [before, after].map(|bytes| bytes.to_string())));
        }
    }
    let differs = found.into_iter().filter(|(_, [before, after])| before != after);
    differs
        .map(|(name, [before, after])| format!("{name}: {before} before, {after} after"))
        .collect()
}

fn device(device: &Device) -> String {
    match device {
        Device::Card(name) => format!("card:{name}"),
        Device::Image => "image".to_owned(),
        Device::Block(path) => path.display().to_string(),
        Device::Directory(path) => format!("directory:{}", path.display()),
    }
}
