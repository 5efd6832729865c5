//! Determines the missing privilege or the kernel state that forbids tracing, as text for the user.

use std::fs;

/// Bits of the capability sets.
const CAPABILITIES: [(u32, &str); 3] = [(39, "CAP_BPF"), (38, "CAP_PERFMON"), (21, "CAP_SYS_ADMIN")];
/// Release from which on the kernel has all that the BPF programs use (bpf_loop).
const OLDEST: (u32, u32) = (5, 17);
const SYS_ADMIN: u32 = 21;
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// The reason why BPF programs are forbidden; `None` if there is no known one.
pub(crate) fn why_no_bpf() -> Option<String> {
    if lockdown().as_deref() == Some("confidentiality") {
        return Some(format!(
            "the kernel is locked down to confidentiality ({LOCKDOWN}), which forbids BPF programs and tracefs alike; \
             boot with lockdown=integrity or read another tool's trace instead"
        ));
    }
    let effective = effective_capabilities()?;
    let has = |bit: u32| effective >> bit & 1 == 1;
    if has(SYS_ADMIN) {
        return None;
    }
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(bit, _)| *bit != SYS_ADMIN && !has(*bit))
        .map(|(_, name)| *name)
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "this process lacks {}; run it as root, or give it these capabilities",
            missing.join(" and ")
        )
    })
}

/// The reason why this kernel is too old for the BPF programs, if it is.
pub(crate) fn too_old() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    is_too_old(&release)?.then(|| {
        let (major, minor) = OLDEST;
        format!(
            "the BPF programs need Linux {major}.{minor} or later; this is {}",
            release.trim()
        )
    })
}

fn is_too_old(release: &str) -> Option<bool> {
    Some(version(release)? < OLDEST)
}

/// Whether the running kernel is at least this one.
pub(crate) fn is_since(oldest: (u32, u32)) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    version(&release).is_some_and(|running| running >= oldest)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || numbers.next()?.parse::<u32>().ok();
    Some((next()?, next()?))
}

/// `none`, `integrity` or `confidentiality`; `None` if securityfs is not mounted.
pub(crate) fn lockdown() -> Option<String> {
    let text = fs::read_to_string(LOCKDOWN).ok()?;
    text.split(['[', ']']).nth(1).map(str::to_owned)
}

fn effective_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for (release, expected) in [
            ("5.9.12", Some(true)),
            ("5.17.0-rc1", Some(false)),
            ("6.1.0-56-amd64", Some(false)),
            ("10.0", Some(false)),
            ("4.20-x", Some(true)),
            ("x", None),
        ] {
            assert_eq!(is_too_old(release), expected, "{release}");
        }
    }
}
