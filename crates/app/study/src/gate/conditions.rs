//! Conditions that two studies must share for their speeds to be compared.

use std::collections::BTreeSet;

use results::nearest_f64;

use super::Stored;
use crate::cell::MACHINE;
use crate::folder::place;
use crate::plan::Device;

/// Memory sizes that differ by less are those of one machine; kernels reserve different parts of it.
const MEMORY_TOLERANCE: f64 = 0.05;

/// Between values of one study that differ.
const BETWEEN: &str = " and then ";

/// Conditions by which speeds of two studies can't be compared.
pub fn differences(baseline: Stored<'_>, measured: Stored<'_>) -> Vec<String> {
    let sides = [baseline, measured];
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "not set".to_owned(), |bytes| bytes.to_string());
    let environment = |value: fn(&crate::plan::Environment) -> Option<u64>| {
        sides.map(|side| bytes(value(&side.plan.environment)))
    };
    // Cells of the guest have the host information of their virtual machine.
    let hosts = sides.map(|side| {
        let own = side.records.iter().filter(|record| {
            place(record)
                .is_some_and(|place| place.cell.value(MACHINE).is_empty() && place.left_out.is_none())
        });
        own.map(|record| &record.host).collect::<Vec<_>>()
    });
    let known = |name, values: [Option<String>; 2]| match values {
        [Some(before), Some(after)] => Some((name, [before, after])),
        _ => None,
    };
    // A study that was continued on another machine has several values.
    let host = |value: fn(&results::HostInfo) -> String| {
        [0, 1].map(|side| all(hosts[side].iter().map(|host| value(host))))
    };
    let machine = |side: Stored<'_>| {
        let places = side.records.iter().filter_map(place);
        all(places.filter_map(|place| place.machine))
    };
    let mut found = vec![
        ("device", sides.map(|side| device(&side.plan.environment.device))),
        ("size of the device", environment(|environment| environment.size)),
        ("dirty limit", environment(|environment| environment.dirty_limit)),
        ("time scale", sides.map(|side| side.state.time_scale.to_string())),
        ("kernel", sides.map(|side| side.state.kernel.clone())),
        (
            "method of measuring",
            sides.map(|side| side.state.method.to_string()),
        ),
    ];
    found.extend(known("architecture", host(|host| host.machine.clone())));
    found.extend(known(
        "processor",
        host(|host| host.processor.clone().unwrap_or_default()),
    ));
    found.extend(known("number of processors", host(|host| host.cpus.to_string())));
    found.extend(known("virtual machine", sides.map(machine)));
    let memories = [0, 1].map(|side: usize| {
        let bytes = || hosts[side].iter().map(|host| host.memory_bytes);
        bytes().min().zip(bytes().max())
    });
    if let [Some((least, most)), Some(after)] = memories {
        let (low, high) = (least.min(after.0), most.max(after.1));
        if nearest_f64(high - low) > nearest_f64(low) * MEMORY_TOLERANCE {
            let text = |(least, most): (u64, u64)| all([least, most].map(|bytes| bytes.to_string()));
            found.extend(known("memory in bytes", [text((least, most)), text(after)]));
        }
    }
    let is_mixed = |value: &String| value.contains(BETWEEN);
    let differs = found
        .into_iter()
        .filter(|(_, [before, after])| before != after || is_mixed(before));
    differs
        .map(|(name, [before, after])| format!("{name}: {before} before, {after} after"))
        .collect()
}

/// The distinct values of a study, in one text.
fn all(values: impl IntoIterator<Item = String>) -> Option<String> {
    let distinct: BTreeSet<String> = values.into_iter().collect();
    let texts: Vec<String> = distinct.into_iter().collect();
    (!texts.is_empty()).then(|| texts.join(BETWEEN))
}

fn device(device: &Device) -> String {
    match device {
        Device::Card(name) => format!("card:{name}"),
        Device::Image => "image".to_owned(),
        Device::Block(path) => path.display().to_string(),
        Device::Directory(path) => format!("directory:{}", path.display()),
    }
}
