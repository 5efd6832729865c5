//! Merges flags and `-o` keys into one [`MountPlan`], and refuses contradictions before anything is touched.
//!
//! A flag wins over an `-o` key; of several keys the last one wins. Every flag of `tidegate mount` is also a key, with `_`
//! for `-`. Generic mount options are passed to the kernel, and words of fstab are ignored.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use buffer::{BufferConfig, Flusher};
use fuse::{Coherence, MountConfig, Opens, Switch};
use results::words::nearest;

use crate::arguments::{
    IoUnit, MountArguments, StreamAfter, parse_io_unit, parse_poll, parse_stream_after, parse_umask,
};
use crate::inspect::{FOLDERS, not_understood};
use crate::mount_table::resolve_without_entering;
use crate::quantity::{parse_bytes, parse_duration};

/// All parameters of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPlan {
    /// The folder to mount.
    pub source: PathBuf,
    /// The mount point.
    pub mountpoint: PathBuf,
    /// Configuration of the FUSE session.
    pub session: MountConfig,
    /// Configuration of the write buffer.
    pub buffer: BufferConfig,
    /// Number of contiguous bytes after which a stream of writes bypasses the source's page cache.
    pub stream_after_bytes: Option<u64>,
    /// Displayed owners and permissions.
    pub ids: IdPlan,
    /// Mount over an existing mount of tidegate.
    pub over: bool,
}

/// Displayed owner, group and permission bits of all files; `None` shows the source's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdPlan {
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Permission bits to clear.
    pub umask: Option<u32>,
}

impl IdPlan {
    /// Returns true if owners or permissions differ from the source's.
    pub fn maps(&self) -> bool {
        *self != Self::default()
    }
}

/// Default threshold of a stream, the default size of the whole write buffer. Smaller files go through the page cache,
/// because they are likely to be read soon.
const STREAM_AFTER_BYTES: u64 = 8 << 20;

/// Lifetime of cached names and attributes, unless one is given.
const DEFAULT_COHERENCE: Coherence = Coherence::Timeout;

/// Keys that take a value.
const VALUE_KEYS: [&str; 21] = [
    "io_unit",
    "buffer",
    "entry",
    "flush_interval",
    "flusher",
    "stream_after",
    "writeback",
    "passthrough",
    "uring",
    "direct_io",
    "open",
    "threads",
    "poll",
    "uid",
    "gid",
    "umask",
    "coherence",
    "attr_timeout",
    "entry_timeout",
    "fsname",
    "subtype",
];

/// Keys without a value.
const WORD_KEYS: [&str; 5] = ["ro", "rw", "read_only", "allow_other", "over"];

/// Generic options for the kernel, each with its opposite.
const KERNEL_PAIRS: [(&str, &str); 10] = [
    ("nosuid", "suid"),
    ("nodev", "dev"),
    ("noexec", "exec"),
    ("noatime", "atime"),
    ("nodiratime", "diratime"),
    ("strictatime", "nostrictatime"),
    ("lazytime", "nolazytime"),
    ("nosymfollow", "symfollow"),
    ("sync", "async"),
    ("dirsync", "nodirsync"),
];

/// Opposites that must be passed to the session; the others are its defaults.
const FREEING: [&str; 2] = ["suid", "dev"];

/// Words of fstab(5) and mount(8) that are not for the file system, and options that always apply here.
const IGNORED: [&str; 16] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "relatime",
    "norelatime",
    "default_permissions",
    "silent",
    "loud",
    "nonempty",
];

/// Options of a FUSE connection; mount(8) copies them from the mount table for a remount.
const OF_THE_CONNECTION: [&str; 6] = ["fd", "rootmode", "user_id", "group_id", "max_read", "blksize"];

/// Settings collected from `-o` keys, then from flags.
#[derive(Default)]
struct Settings {
    io_unit: Option<IoUnit>,
    writeback: Option<Switch>,
    passthrough: Option<Switch>,
    uring: Option<Switch>,
    direct_io: Option<Switch>,
    open: Option<Opens>,
    threads: Option<u16>,
    poll: Option<Duration>,
    coherence: Option<Coherence>,
    attr_timeout: Option<Duration>,
    entry_timeout: Option<Duration>,
    buffer: Option<u64>,
    entry: Option<u64>,
    flush_interval: Option<Duration>,
    flusher: Option<Flusher>,
    stream_after: Option<StreamAfter>,
    read_only: bool,
    allow_other: bool,
    over: bool,
    ids: IdPlan,
    fsname: Option<String>,
    subtype: Option<String>,
    kernel: Vec<String>,
}

impl MountPlan {
    /// Merges flags and `-o` keys.
    pub fn from_arguments(arguments: &MountArguments) -> Result<Self> {
        Settings::of(arguments)?.finish(arguments)
    }
}

/// Checks the settings of a mount, whatever its folders.
pub fn check(arguments: &MountArguments) -> Result<()> {
    Settings::of(arguments)?.own().map(drop)
}

/// All `-o` options of a command line in order, split at commas.
pub fn all_options(arguments: &MountArguments) -> Vec<String> {
    arguments
        .options
        .iter()
        .flat_map(|list| split_options(list))
        .collect()
}

/// Returns true for an option of the kernel or mount(8), false for one of tidegate's own.
pub fn is_generic(option: &str) -> bool {
    let key = option.split_once('=').map_or(option, |(key, _)| key);
    let is_flag = KERNEL_PAIRS
        .iter()
        .any(|(set, clear)| option == *set || option == *clear);
    is_flag
        || ["ro", "rw", "remount"].contains(&option)
        || OF_THE_CONNECTION.contains(&key)
        || is_ignored(option, key)
}

/// Returns true if the flags of `asked` and the options `own` would change the mount of `running` in any but the generic
/// options.
pub fn differs(running: &MountArguments, asked: &MountArguments, own: &[String]) -> Result<bool> {
    let before = Settings::of(running)?;
    let mut after = Settings::of(running)?;
    for option in own {
        after.apply(option, asked.sloppy)?;
    }
    after.override_with(asked);
    Ok(before.own()? != after.own()?)
}

impl Settings {
    fn of(arguments: &MountArguments) -> Result<Self> {
        let mut settings = Self::default();
        for option in all_options(arguments) {
            settings.apply(&option, arguments.sloppy)?;
        }
        settings.override_with(arguments);
        Ok(settings)
    }

    /// The plan of these settings for an arbitrary folder, without the parts that the kernel may change later.
    fn own(self) -> Result<MountPlan> {
        let mut plan = self.finish(&MountArguments {
            source: "/".into(),
            mountpoint: "/".into(),
            ..MountArguments::default()
        })?;
        plan.session.read_only = false;
        plan.over = false;
        plan.session.kernel_options.clear();
        Ok(plan)
    }

    fn apply(&mut self, option: &str, sloppy: bool) -> Result<()> {
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (option, None),
        };
        let key = key.replace('-', "_");
        if is_ignored(option, &key) || (value.is_none() && self.apply_word(&key)) {
            return Ok(());
        }
        if VALUE_KEYS.contains(&key.as_str()) {
            let value = value.ok_or_else(|| anyhow!("option `{key}` needs a value: {key}=..."))?;
            return self
                .apply_value(&key, value)
                .map_err(|reason| anyhow!("option `{key}={value}`: {reason}"));
        }
        if sloppy {
            return Ok(());
        }
        if value.is_some() && is_word(&key) {
            bail!("option `{key}` takes no value, `{option}` has one");
        }
        bail!(
            "option `{key}` is unknown; {}",
            match nearest(&key, &known_keys().collect::<Vec<_>>()) {
                None => "`tidegate mount --help` lists the known ones".to_owned(),
                Some(known) => format!("did you mean `{known}`?"),
            }
        )
    }

    fn apply_value(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = || {
            value
                .parse::<u32>()
                .map_err(|_| format!("`{value}` is no number from 0 to {}", u32::MAX))
        };
        match key {
            "io_unit" => self.io_unit = Some(parse_io_unit(value)?),
            "buffer" => self.buffer = Some(parse_bytes(value)?),
            "entry" => self.entry = Some(parse_bytes(value)?),
            "flush_interval" => self.flush_interval = Some(parse_duration(value)?),
            "flusher" => self.flusher = Some(value.parse()?),
            "stream_after" => self.stream_after = Some(parse_stream_after(value)?),
            "writeback" => self.writeback = Some(value.parse()?),
            "passthrough" => self.passthrough = Some(value.parse()?),
            "uring" => self.uring = Some(value.parse()?),
            "direct_io" => self.direct_io = Some(value.parse()?),
            "open" => self.open = Some(value.parse()?),
            "threads" => match value.parse() {
                Ok(threads @ 1..=256) => self.threads = Some(threads),
                _ => return Err(format!("`{value}` is no number from 1 to 256")),
            },
            "poll" => self.poll = Some(parse_poll(value)?),
            "uid" => self.ids.uid = Some(number()?),
            "gid" => self.ids.gid = Some(number()?),
            "umask" => self.ids.umask = Some(parse_umask(value)?),
            "coherence" => self.coherence = Some(value.parse()?),
            "attr_timeout" => self.attr_timeout = Some(parse_duration(value)?),
            "entry_timeout" => self.entry_timeout = Some(parse_duration(value)?),
            "fsname" => self.fsname = Some(value.to_owned()),
            "subtype" => self.subtype = Some(value.to_owned()),
            other => unreachable!("{other} is listed in VALUE_KEYS and not handled"),
        }
        Ok(())
    }

    /// Applies an option without a value; returns false if it is unknown.
    fn apply_word(&mut self, key: &str) -> bool {
        match key {
            "ro" | "read_only" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = true,
            "over" => self.over = true,
            _ => {
                let Some((set, clear)) = KERNEL_PAIRS
                    .iter()
                    .find(|(set, clear)| key == *set || key == *clear)
                else {
                    return false;
                };
                self.kernel.retain(|option| option != set && option != clear);
                // A FUSE mount is nosuid and nodev by default; the other opposites are the default.
                if key == *set || FREEING.contains(&key) {
                    self.kernel.push(key.to_owned());
                }
            }
        }
        true
    }

    fn override_with(&mut self, flags: &MountArguments) {
        self.io_unit = flags.io_unit.or(self.io_unit);
        self.writeback = flags.writeback.or(self.writeback);
        self.passthrough = flags.passthrough.or(self.passthrough);
        self.uring = flags.uring.or(self.uring);
        self.direct_io = flags.direct_io.or(self.direct_io);
        self.open = flags.open.or(self.open);
        self.threads = flags.threads.or(self.threads);
        self.poll = flags.poll.or(self.poll);
        self.coherence = flags.coherence.or(self.coherence);
        self.attr_timeout = flags.attr_timeout.or(self.attr_timeout);
        self.entry_timeout = flags.entry_timeout.or(self.entry_timeout);
        self.buffer = flags.buffer.or(self.buffer);
        self.entry = flags.entry.or(self.entry);
        self.flush_interval = flags.flush_interval.or(self.flush_interval);
        self.flusher = flags.flusher.or(self.flusher);
        self.stream_after = flags.stream_after.or(self.stream_after);
        self.read_only |= flags.read_only;
        self.allow_other |= flags.allow_other;
        self.over |= flags.over;
        self.ids.uid = flags.uid.or(self.ids.uid);
        self.ids.gid = flags.gid.or(self.ids.gid);
        self.ids.umask = flags.umask.or(self.ids.umask);
    }

    fn finish(self, arguments: &MountArguments) -> Result<MountPlan> {
        let source = arguments
            .source
            .canonicalize()
            .with_context(|| format!("source {} can't be used", arguments.source.display()))?;
        if !source.is_dir() {
            let error = anyhow!("source {} is not a folder", source.display());
            return Err(not_understood(&source, "a folder", &FOLDERS, error));
        }
        let mountpoint = resolve_without_entering(&arguments.mountpoint)?;
        let buffer = self.buffer_config()?;
        let stream_after_bytes = match self.stream_after {
            Some(StreamAfter::Bytes(bytes)) => Some(bytes),
            None if buffer.flusher != Flusher::Off => Some(STREAM_AFTER_BYTES),
            Some(StreamAfter::Off) | None => None,
        };
        let session = MountConfig {
            source: self.fsname.unwrap_or_else(|| source.display().to_string()),
            subtype: self.subtype.unwrap_or_else(|| "tidegate".to_owned()),
            io_unit_bytes: match self.io_unit {
                None | Some(IoUnit::Max) => None,
                Some(IoUnit::Bytes(bytes)) => Some(bytes),
            },
            writeback: self.writeback.unwrap_or_default(),
            passthrough: self.passthrough.unwrap_or_default(),
            uring: self.uring.unwrap_or_default(),
            direct_io: self.direct_io.unwrap_or_default(),
            threads: self.threads,
            // Over another server, polling takes the processor time that it needs.
            poll: self
                .poll
                .or_else(|| passfs::has_server(&source).then_some(Duration::ZERO)),
            read_only: self.read_only,
            allow_other: self.allow_other,
            posix_acl: !self.ids.maps(),
            attr_ttl: self.attr_timeout.unwrap_or(Duration::from_secs(1)),
            entry_ttl: self.entry_timeout.unwrap_or(Duration::from_secs(1)),
            coherence: match self.coherence.unwrap_or(DEFAULT_COHERENCE) {
                // Explicit times are kept.
                Coherence::Auto if self.attr_timeout.is_some() || self.entry_timeout.is_some() => {
                    Coherence::Timeout
                }
                coherence => coherence,
            },
            opens: self.open.unwrap_or_default(),
            kernel_options: self.kernel,
        };
        Ok(MountPlan {
            source,
            mountpoint,
            session,
            buffer,
            stream_after_bytes,
            ids: self.ids,
            over: self.over,
        })
    }

    fn buffer_config(&self) -> Result<BufferConfig> {
        let defaults = BufferConfig::default();
        let buffer_bytes = self.buffer.unwrap_or(defaults.buffer_bytes);
        let config = BufferConfig {
            buffer_bytes,
            // A buffer smaller than the default entry is a single entry.
            entry_bytes: self.entry.unwrap_or(defaults.entry_bytes.min(buffer_bytes)),
            flush_interval: self.flush_interval.unwrap_or(defaults.flush_interval),
            flusher: self.flusher.unwrap_or(defaults.flusher),
        };
        Ok(config.validated()?)
    }
}

/// Splits at commas; within a value `\,` is a comma and `\\` a backslash.
fn split_options(list: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut characters = list.chars();
    while let Some(character) = characters.next() {
        let escaped = (character == '\\').then(|| characters.next()).flatten();
        match (character, escaped, options.last_mut()) {
            (_, Some(literal), Some(option)) => option.push(literal),
            (',', None, _) => options.push(String::new()),
            (other, None, Some(option)) => option.push(other),
            (_, _, None) => unreachable!("the list starts with one option"),
        }
    }
    options.retain(|option| !option.is_empty());
    options
}

fn is_ignored(option: &str, key: &str) -> bool {
    IGNORED.contains(&option) || option.starts_with("x-") || option.starts_with("X-") || key == "comment"
}

fn is_word(key: &str) -> bool {
    known_keys().any(|known| known == key) && !VALUE_KEYS.contains(&key)
}

fn known_keys() -> impl Iterator<Item = &'static str> {
    let kernel = KERNEL_PAIRS.iter().flat_map(|(set, clear)| [*set, *clear]);
    VALUE_KEYS
        .into_iter()
        .chain(WORD_KEYS)
        .chain(kernel)
        .chain(IGNORED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(options: &str) -> Result<MountPlan> {
        MountPlan::from_arguments(&arguments(options))
    }

    fn arguments(options: &str) -> MountArguments {
        MountArguments {
            source: "/".into(),
            mountpoint: "/mnt".into(),
            options: vec![options.to_owned()],
            ..MountArguments::default()
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_help_text() {
        let plan = plan("").unwrap();
        assert_eq!(plan.buffer.buffer_bytes, 8 << 20);
        assert_eq!(plan.buffer.entry_bytes, 2 << 20);
        assert_eq!(plan.buffer.flush_interval, Duration::from_millis(10));
        assert_eq!(plan.buffer.flusher, Flusher::Thread);
        assert_eq!(plan.session.io_unit_bytes, None);
        assert_eq!(plan.session.attr_ttl, Duration::from_secs(1));
        assert_eq!(plan.session.source, "/");
        assert_eq!(plan.session.subtype, "tidegate");
        assert!(plan.session.posix_acl);
    }

    #[test]
    fn every_key_sets_what_it_names() {
        let plan = plan(
            "io_unit=512k,buffer=4m,entry=1m,flush_interval=20ms,flusher=inline,writeback=off,passthrough=on,\
             uring=off,direct_io=on,open=kernel,threads=3,poll=7us,ro,allow_other,uid=1,gid=2,umask=027,attr_timeout=2s,\
             coherence=watch,entry_timeout=0,fsname=a\\,b,subtype=x,nosuid",
        )
        .unwrap();
        let expected = MountConfig {
            source: "a,b".into(),
            subtype: "x".into(),
            io_unit_bytes: Some(512 << 10),
            writeback: Switch::Off,
            passthrough: Switch::On,
            uring: Switch::Off,
            direct_io: Switch::On,
            threads: Some(3),
            poll: Some(Duration::from_micros(7)),
            read_only: true,
            allow_other: true,
            posix_acl: false,
            attr_ttl: Duration::from_secs(2),
            entry_ttl: Duration::ZERO,
            coherence: Coherence::Watch,
            opens: Opens::Kernel,
            kernel_options: vec!["nosuid".into()],
        };
        assert_eq!(plan.session, expected);
        assert_eq!(
            plan.ids,
            IdPlan {
                uid: Some(1),
                gid: Some(2),
                umask: Some(0o27)
            }
        );
        assert_eq!(
            (plan.buffer.buffer_bytes, plan.buffer.entry_bytes),
            (4 << 20, 1 << 20)
        );
        assert_eq!(plan.buffer.flush_interval, Duration::from_millis(20));
        assert_eq!(plan.buffer.flusher, Flusher::Inline);
    }

    #[test]
    fn streams_leave_the_page_cache_unless_told_otherwise_or_without_a_buffer() {
        let after = |options| plan(options).unwrap().stream_after_bytes;
        assert_eq!(after(""), Some(8 << 20));
        assert_eq!(after("stream_after=64m"), Some(64 << 20));
        assert_eq!(after("stream_after=off"), None);
        assert_eq!(after("flusher=off"), None);
        assert_eq!(after("flusher=off,stream_after=1m"), Some(1 << 20));
    }

    #[test]
    fn a_flag_wins_over_a_key_and_the_last_key_wins() {
        let mut arguments = arguments("buffer=16m,io_unit=4k,io_unit=8k,ro,rw");
        arguments.buffer = Some(32 << 20);
        let plan = MountPlan::from_arguments(&arguments).unwrap();
        assert_eq!(plan.buffer.buffer_bytes, 32 << 20);
        assert_eq!(plan.session.io_unit_bytes, Some(8 << 10));
        assert!(!plan.session.read_only);
    }

    #[test]
    fn words_of_fstab_mean_nothing() {
        let with_words = plan(
            "defaults,noauto,nofail,_netdev,user,users,x-systemd.automount,comment=mine,default_permissions,rw",
        );
        assert_eq!(with_words.unwrap(), plan("").unwrap());
    }

    #[test]
    fn an_opposite_takes_a_kernel_option_back() {
        let plan = plan("nosuid,nodev,noexec,noatime,sync,dirsync,suid,exec,async").unwrap();
        assert_eq!(
            plan.session.kernel_options,
            ["nodev", "noatime", "dirsync", "suid"]
        );
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known() {
        let message = plan("bufer=8m").unwrap_err().to_string();
        assert!(
            message.ends_with("option `bufer` is unknown; did you mean `buffer`?"),
            "{message}"
        );
    }

    #[test]
    fn a_word_like_no_key_gets_no_suggestion() {
        let message = plan("colourful=1").unwrap_err().to_string();
        assert!(
            message.contains("--help") && !message.contains("did you mean"),
            "{message}"
        );
    }

    #[test]
    fn an_unknown_key_passes_when_mount_asked_to_be_sloppy() {
        let mut arguments = arguments("bufer=8m");
        arguments.sloppy = true;
        MountPlan::from_arguments(&arguments).unwrap();
    }

    #[test]
    fn every_known_key_is_accepted() {
        let value_of = |key| match key {
            "flusher" => "off",
            "coherence" | "writeback" | "passthrough" | "uring" | "direct_io" => "auto",
            "open" => "daemon",
            "io_unit" | "entry" => "4k",
            "poll" => "0",
            _ => "7",
        };
        for key in known_keys().filter(|key| *key != "buffer") {
            let option = if VALUE_KEYS.contains(&key) {
                format!("{key}={}", value_of(key))
            } else {
                key.to_owned()
            };
            plan(&option).unwrap_or_else(|error| panic!("{option}: {error}"));
        }
    }

    #[test]
    fn senseless_sizes_are_refused() {
        for options in [
            "buffer=1m,entry=2m",
            "entry=5000",
            "buffer=0",
            "flush_interval=0",
            "threads=0",
            "umask=9",
            "uid=x",
            "ro=1",
            "buffer",
        ] {
            plan(options).expect_err(options);
        }
    }

    #[test]
    fn a_remount_may_repeat_own_options_and_not_change_them() {
        let running = MountArguments {
            entry: Some(1 << 20),
            ..arguments("buffer=4m,nosuid")
        };
        let asked = MountArguments::default();
        let is_other = |own: &[&str]| {
            let own: Vec<String> = own.iter().map(|option| (*option).to_owned()).collect();
            differs(&running, &asked, &own).unwrap()
        };
        assert!(!is_other(&[]));
        assert!(!is_other(&["buffer=4m", "entry=1m", "flusher=thread"]));
        assert!(is_other(&["buffer=8m"]));
        assert!(is_other(&["entry=2m"]));
        assert!(is_other(&["allow_other"]));
    }

    #[test]
    fn generic_options_are_told_from_own_ones() {
        for option in [
            "remount",
            "ro",
            "nosuid",
            "relatime",
            "user_id=0",
            "x-systemd.automount",
        ] {
            assert!(is_generic(option), "{option}");
        }
        for option in ["buffer=8m", "allow_other", "bufer=8m"] {
            assert!(!is_generic(option), "{option}");
        }
    }
}
