//! Text of `ubifs log`: the journal as a mount reads it, with reasons.

use results::shown;
use serde_json::{Value, json};
use ubifs::format::{KeyKind, NodeKind};
use ubifs::{AppliedNode, BudEnd, BudReport, Effect, LogEntry, LogLeb, LogVerdict, ReplayReport, Ubifs};

fn head_name(head: u32) -> &'static str {
    match head {
        0 => "garbage collection",
        1 => "base",
        2 => "data",
        _ => "unknown",
    }
}

fn verdict_text(verdict: LogVerdict) -> &'static str {
    match verdict {
        LogVerdict::Taken => "part of the log",
        LogVerdict::Empty => "empty: the log ends before it",
        LogVerdict::Older => "older than the log's start: left over, the log ends before it",
        LogVerdict::Unreadable => "it can't be read: the log ends before it",
    }
}

/// The replay of the journal, as lines.
#[must_use]
pub fn journal(ubifs: &Ubifs) -> Vec<String> {
    let (master, report) = (ubifs.master(), ubifs.replay_report());
    let state = match report.was_clean {
        true => "unmounted: nothing can be torn",
        false => "not unmounted: the last write of each head may be torn",
    };
    let mut lines = vec![
        format!(
            "master: commit {}, log starts in LEB {}, {state}",
            master.commit, master.log_leb
        ),
        format!(
            "{} nodes of {} buds applied, {} of them removals; largest sequence number {}",
            report.nodes,
            report.buds.len(),
            report.removals,
            report.sequence_max
        ),
    ];
    lines.extend(report.log.iter().flat_map(log_lines));
    lines.extend(report.buds.iter().flat_map(bud_lines));
    lines.extend(report.applied.iter().map(applied_line));
    lines.extend(recovery_lines(report));
    lines
}

fn log_lines(leb: &LogLeb) -> Vec<String> {
    let mut lines = vec![format!("log LEB {}: {}", leb.leb, verdict_text(leb.verdict))];
    if leb.verdict != LogVerdict::Taken {
        return lines;
    }
    for node in &leb.nodes {
        let what = match node.what {
            LogEntry::CommitStart { commit } => format!("commit {commit} starts"),
            LogEntry::Reference {
                leb,
                offset,
                head,
                is_repeated,
            } => {
                let again = if is_repeated { ", named before" } else { "" };
                format!(
                    "bud LEB {leb} from offset {offset}, head {head} ({}){again}",
                    head_name(head)
                )
            }
            LogEntry::Authentication => "hash over the nodes before".to_owned(),
            LogEntry::Ignored(kind) => format!("{}: ignored", kind.name()),
        };
        lines.push(format!(
            "  offset {}, sequence {}: {what}",
            node.offset, node.sequence
        ));
    }
    lines
}

fn bud_lines(bud: &BudReport) -> Vec<String> {
    let sequences = match bud.sequences {
        Some((first, last)) => format!(", sequence {first} to {last}"),
        None => String::new(),
    };
    let torn = match bud.may_be_torn {
        true => "may be torn: the last of its head that holds anything, and not unmounted",
        false => "can't be torn",
    };
    let mut lines = vec![
        format!(
            "bud LEB {}, offset {}: head {} ({}), {} nodes{sequences}",
            bud.leb,
            bud.offset,
            bud.head,
            head_name(bud.head),
            bud.nodes
        ),
        format!("  {torn}"),
    ];
    match bud.end {
        BudEnd::Clean => {}
        BudEnd::Torn(at) => {
            let rule = bud.rule.map_or("", |rule| rule.text());
            lines.push(format!("  torn at offset {at}: {rule}"));
        }
        BudEnd::Damaged(at) => lines.push(format!("  damaged at offset {at}: no power cut explains it")),
    }
    for node in &bud.dropped_nodes {
        lines.push(format!(
            "  dropped: {} at offset {}, sequence {}: {}",
            node.kind.name(),
            node.offset,
            node.sequence,
            node.why.text()
        ));
    }
    lines
}

fn effect_text(node: &AppliedNode) -> String {
    let inode = node.key.inode_number();
    let is_xattr = node.key.kind() == Some(KeyKind::XattrEntry);
    let name_kind = if is_xattr { "extended attribute" } else { "name" };
    match &node.effect {
        Effect::Inode { bytes } => format!("{inode}: {bytes} bytes"),
        Effect::InodeRemoved => format!("{inode}: removed with all that it has"),
        Effect::InodeKept => format!("{inode}: without a name, and linked again later: kept"),
        Effect::Block { end } => format!("{inode}: block {}, up to byte {end}", node.key.low()),
        Effect::Name(name) => format!("{inode}: {name_kind} \"{}\"", shown::name(name)),
        Effect::NameRemoved(name) => format!("{inode}: {name_kind} \"{}\" removed", shown::name(name)),
        Effect::Truncated { bytes } => format!("{inode}: cut to {bytes} bytes"),
    }
}

fn applied_line(node: &AppliedNode) -> String {
    let place = node.place;
    let effect = effect_text(node);
    format!(
        "node {}, LEB {}, offset {}: {effect}",
        node.sequence, place.leb, place.offset
    )
}

fn recovery_lines(report: &ReplayReport) -> Vec<String> {
    let sizes = report.sizes.iter().map(|(inode, bytes)| {
        format!("{inode}: made {bytes} bytes long, its data are there and the inode that was to follow them is not")
    });
    let orphans = report
        .orphans
        .iter()
        .map(|inode| format!("{inode}: removed, it was open without a name"));
    sizes.chain(orphans).collect()
}

/// As [`journal`], as a JSON object.
#[must_use]
pub fn journal_json(ubifs: &Ubifs) -> Value {
    let (master, report) = (ubifs.master(), ubifs.replay_report());
    let sizes = report
        .sizes
        .iter()
        .map(|(inode, bytes)| json!({"inode": inode.0, "bytes": bytes}));
    let applied = report.applied.iter().map(|node| {
        json!({
            "sequence": node.sequence,
            "leb": node.place.leb,
            "offset_bytes": node.place.offset,
            "inode": node.key.inode_number().0,
            "effect": effect_text(node),
        })
    });
    json!({
        "commit": master.commit,
        "log_leb": master.log_leb,
        "clean": report.was_clean,
        "nodes": report.nodes,
        "removals": report.removals,
        "sequence_max": report.sequence_max,
        "log": report.log.iter().map(log_json).collect::<Vec<_>>(),
        "buds": report.buds.iter().map(bud_json).collect::<Vec<_>>(),
        "applied": applied.collect::<Vec<_>>(),
        "sizes_recovered": sizes.collect::<Vec<_>>(),
        "orphans_removed": report.orphans.iter().map(|inode| inode.0).collect::<Vec<_>>(),
        "findings": ubifs.findings().iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn log_json(leb: &LogLeb) -> Value {
    let nodes = leb.nodes.iter().map(|node| {
        let mut value = match node.what {
            LogEntry::CommitStart { commit } => json!({"kind": "commit start", "commit": commit}),
            LogEntry::Reference {
                leb,
                offset,
                head,
                is_repeated,
            } => json!({"kind": "reference", "leb": leb, "bud_offset_bytes": offset, "head": head, "repeated": is_repeated}),
            LogEntry::Authentication => json!({"kind": NodeKind::Authentication.name()}),
            LogEntry::Ignored(kind) => json!({"kind": kind.name(), "ignored": true}),
        };
        value["offset_bytes"] = json!(node.offset);
        value["sequence"] = json!(node.sequence);
        value
    });
    json!({"leb": leb.leb, "verdict": verdict_text(leb.verdict), "nodes": nodes.collect::<Vec<_>>()})
}

fn bud_json(bud: &BudReport) -> Value {
    let (end, at) = super::file_system::end_of(bud.end);
    let dropped = bud.dropped_nodes.iter().map(|node| {
        json!({"offset_bytes": node.offset, "kind": node.kind.name(), "sequence": node.sequence, "why": node.why.text()})
    });
    json!({
        "leb": bud.leb,
        "offset_bytes": bud.offset,
        "head": bud.head,
        "may_be_torn": bud.may_be_torn,
        "nodes": bud.nodes,
        "sequences": bud.sequences,
        "end": end,
        "end_offset_bytes": at,
        "rule": bud.rule.map(|rule| rule.text()),
        "dropped": dropped.collect::<Vec<_>>(),
    })
}
