//! Superblock, master node, and a summary of the replay.

use media::quantity;
use serde_json::json;
use ubifs::format::{Compression, SuperblockFlags};
use ubifs::{BudEnd, Ubifs};

fn flag_names(ubifs: &Ubifs) -> Vec<&'static str> {
    let flags = SuperblockFlags(ubifs.superblock().flags);
    let all = [
        (SuperblockFlags::BIG_LPT, "big-lpt"),
        (SuperblockFlags::SPACE_FIXUP, "space-fixup"),
        (SuperblockFlags::DOUBLE_HASH, "double-hash"),
        (SuperblockFlags::ENCRYPTION, "encryption"),
        (SuperblockFlags::AUTHENTICATION, "authentication"),
    ];
    all.into_iter()
        .filter(|(flag, _)| flags.has(*flag))
        .map(|(_, name)| name)
        .collect()
}

fn compression(ubifs: &Ubifs) -> &'static str {
    Compression::from_number(ubifs.superblock().compression).map_or("unknown", Compression::name)
}

/// A UUID in the usual notation.
#[must_use]
pub fn uuid(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// As [`file_system`], as a JSON object.
#[must_use]
pub fn file_system_json(ubifs: &Ubifs) -> serde_json::Value {
    let (superblock, master, report) = (ubifs.superblock(), ubifs.master(), ubifs.replay_report());
    let buds: Vec<_> = report
        .buds
        .iter()
        .map(|bud| {
            let (end, at) = end_of(bud.end);
            json!({"leb": bud.leb, "offset": bud.offset, "head": bud.head, "nodes": bud.nodes, "dropped": bud.dropped,
                   "end": end, "end_offset": at})
        })
        .collect();
    json!({
        "version": superblock.version,
        "uuid": uuid(&superblock.uuid),
        "leb_bytes": superblock.leb_bytes,
        "lebs": superblock.lebs,
        "lebs_max": superblock.lebs_max,
        "min_io_bytes": superblock.min_io_bytes,
        "log_lebs": superblock.log_lebs,
        "lpt_lebs": superblock.lpt_lebs,
        "orphan_lebs": superblock.orphan_lebs,
        "fanout": superblock.fanout,
        "compression": compression(ubifs),
        "flags": flag_names(ubifs),
        "commit": master.commit,
        "highest_inode": master.highest_inode,
        "index_bytes": master.index_bytes,
        "free_bytes": master.free_bytes,
        "used_bytes": master.used_bytes,
        "clean": report.was_clean,
        "replay": {
            "log_lebs": report.log_lebs, "buds": buds, "nodes": report.nodes, "removals": report.removals,
            "sizes_recovered": report.sizes.len(), "orphans_removed": report.orphans.len(),
        },
        "findings": ubifs.findings().iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// The state at the end of a journal LEB, and its offset.
pub(super) fn end_of(end: BudEnd) -> (&'static str, Option<u32>) {
    match end {
        BudEnd::Clean => ("clean", None),
        BudEnd::Torn(at) => ("torn", Some(at)),
        BudEnd::Damaged(at) => ("damaged", Some(at)),
    }
}

/// The superblock, the master node and the replay, as lines.
#[must_use]
pub fn file_system(ubifs: &Ubifs) -> String {
    let (superblock, master, report) = (ubifs.superblock(), ubifs.master(), ubifs.replay_report());
    let mut lines = vec![
        format!("volume       {}", ubifs.volume().name()),
        format!(
            "format       version {}, UUID {}",
            superblock.version,
            uuid(&superblock.uuid)
        ),
        format!(
            "shape        {} LEBs of {} bytes, write unit {}",
            superblock.lebs,
            superblock.leb_bytes,
            quantity::show_bytes(superblock.min_io_bytes.into())
        ),
        format!("compression  {}", compression(ubifs)),
        format!("flags        {}", flag_names(ubifs).join(", ")),
        format!(
            "commit       {}, highest inode {}, index {} bytes",
            master.commit, master.highest_inode, master.index_bytes
        ),
        format!(
            "state        {}",
            if report.was_clean {
                "unmounted cleanly"
            } else {
                "not unmounted: recovered in memory"
            }
        ),
        format!(
            "journal      {} nodes in {} LEBs replayed, {} of them removals; {} sizes recovered, {} orphans removed",
            report.nodes,
            report.buds.len(),
            report.removals,
            report.sizes.len(),
            report.orphans.len()
        ),
    ];
    for bud in &report.buds {
        let (end, at) = end_of(bud.end);
        let at = at.map(|at| format!(" at offset {at}")).unwrap_or_default();
        lines.push(format!(
            "  LEB {}, offset {}: head {}, {} nodes, {} dropped, end {end}{at}",
            bud.leb, bud.offset, bud.head, bud.nodes, bud.dropped
        ));
    }
    lines.join("\n")
}
