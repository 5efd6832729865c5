//! A booted guest: communication with its agent, jobs, power cuts.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::control::{Parser, Word};
use crate::job::SCRIPT;
use crate::keeper::Kept;
use crate::machine::{connect, new_folder, qemu, read_lossy, said};
use crate::{Ended, FlashFile, Job, Lab, LabError, Outcome, file_error, fresh};

/// Limit under emulation on a busy machine; an idle one takes 3 to 5 s.
pub(crate) const BOOT_TIMEOUT: Duration = Duration::from_secs(180);

/// File in the folder of a resident guest that names the folder of its socket and logs.
const MARK: &str = ".lab-guest";

/// List of its chips, in the folder of its socket and logs.
const FLASH_LIST: &str = "flash.list";

/// Parameters of a guest.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory of the guest, MiB. The host allocates it as the guest uses it.
    pub memory_mib: u32,
    /// Processors of the guest.
    pub processors: u32,
    /// NAND chips, in the order of the flash module's devices.
    pub flash: Vec<FlashFile>,
    /// Raw disk images: `/dev/vda`, `/dev/vdb` and so on.
    pub drives: Vec<PathBuf>,
    /// Block devices of the host, named on from the last drive, without the host's page cache.
    pub devices: Vec<PathBuf>,
    /// Raw images of SD cards, each in its own host controller: `/dev/mmcblk0` and on, once a job has loaded
    /// `sdhci_pci` and `mmc_block`. Their sizes must be powers of two.
    pub cards: Vec<PathBuf>,
    /// Folders of the jobs.
    pub folders: Folders,
}

/// The folder on the host that a job sees as `/host`.
#[derive(Clone, Debug)]
pub enum Folders {
    /// Each job has a new one, removed with its [`Outcome`].
    Own,
    /// All jobs of the guest share this one.
    One(PathBuf),
}

impl Default for Options {
    /// Two processors, 1 GiB, no devices.
    fn default() -> Self {
        Self {
            memory_mib: 1024,
            processors: 2,
            flash: Vec::new(),
            drives: Vec::new(),
            devices: Vec::new(),
            cards: Vec::new(),
            folders: Folders::Own,
        }
    }
}

/// A booted guest. It ends when this value is dropped, or with this process.
#[derive(Debug)]
pub struct Guest {
    qemu: Kept,
    control: UnixStream,
    parser: Parser,
    own_folder: PathBuf,
    share: PathBuf,
    flash: Vec<FlashFile>,
    folders: Folders,
    jobs: u32,
    alive: bool,
    detached: bool,
}

/// Whether a guest ends with the process that booted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    WithOwner,
    Detached,
}

impl Guest {
    pub(crate) fn boot(lab: &Lab, options: &Options) -> Result<Self, LabError> {
        Self::start(lab, options, Life::WithOwner)
    }

    /// Boots a guest that outlives this process, with its jobs' folders in `share`; [`Guest::resident`] finds it.
    pub(crate) fn boot_resident(lab: &Lab, options: &Options, share: &Path) -> Result<(), LabError> {
        let mark = share.join(MARK);
        if Self::resident(share, ".").is_ok() {
            return Err(LabError::ResidentAlready(share.to_owned()));
        }
        let options = Options {
            folders: Folders::One(share.to_owned()),
            ..options.clone()
        };
        let guest = Self::start(lab, &options, Life::Detached)?;
        let flash: Vec<String> = options.flash.iter().map(FlashFile::to_line).collect();
        let list = guest.own_folder.join(FLASH_LIST);
        let write = |path: &Path, text: &str| {
            let written = fresh(path).and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(file_error(path))
        };
        write(&list, &flash.concat())?;
        write(&mark, &guest.own_folder.display().to_string())
    }

    /// The guest that was booted for `share` and outlived its process. Its jobs use the subfolder `folder`.
    pub fn resident(share: &Path, folder: &str) -> Result<Self, LabError> {
        let share = fs::canonicalize(share).map_err(file_error(share))?;
        let gone = |_| LabError::NoResident(share.clone());
        let own_folder = PathBuf::from(fs::read_to_string(share.join(MARK)).map_err(gone)?);
        let list = fs::read_to_string(own_folder.join(FLASH_LIST)).map_err(gone)?;
        let mut qemu = Kept::reattach(&own_folder).map_err(gone)?;
        let control = UnixStream::connect(own_folder.join("control"))
            // It has ended by itself: remove its remains.
            .inspect_err(|_| qemu.kill())
            .map_err(gone)?;
        let mut guest = Self {
            qemu,
            control,
            parser: Parser::default(),
            own_folder,
            folders: Folders::One(PathBuf::from(folder)),
            share,
            flash: list.lines().filter_map(FlashFile::from_line).collect(),
            jobs: 0,
            alive: true,
            detached: true,
        };
        guest.wait_until_ready()?;
        Ok(guest)
    }

    fn start(lab: &Lab, options: &Options, life: Life) -> Result<Self, LabError> {
        let own_folder = new_folder()?;
        let (share, folders) = match &options.folders {
            Folders::One(folder) => {
                let share = fs::canonicalize(folder).map_err(file_error(folder))?;
                (share, Folders::One(PathBuf::from(".")))
            }
            Folders::Own => (own_folder.join("share"), Folders::Own),
        };
        fs::create_dir_all(&share).map_err(file_error(&share))?;
        for flash in &options.flash {
            flash.resize(flash.window_bytes())?;
        }
        let command = qemu(lab, options, &own_folder, &share);
        let log = own_folder.join("qemu.log");
        let mut qemu = match life {
            Life::WithOwner => Kept::start(&command, &log, &own_folder),
            Life::Detached => Kept::start_detached(&command, &log, &own_folder),
        }
        .map_err(LabError::Start)?;
        let control = connect(&mut qemu, &own_folder).inspect_err(|_| {
            qemu.kill();
            restore_sizes(&options.flash);
        })?;
        let mut guest = Self {
            qemu,
            control,
            parser: Parser::default(),
            own_folder,
            share,
            flash: options.flash.clone(),
            folders,
            jobs: 0,
            alive: true,
            detached: life == Life::Detached,
        };
        guest.wait_until_ready()?;
        Ok(guest)
    }

    /// Runs a job to its end.
    ///
    /// Its mounts, attached devices and loaded modules are removed afterwards; if that fails, the guest counts as
    /// ended.
    pub fn run(&mut self, job: &Job) -> Result<Outcome, LabError> {
        if !self.alive {
            return Err(LabError::Over);
        }
        self.jobs += 1;
        let name = match &self.folders {
            Folders::One(folder) => folder.display().to_string(),
            Folders::Own => format!("job-{}", self.jobs),
        };
        let folder = self.share.join(&name);
        job.lay_out(&folder)?;
        let command = format!("run {name}\n");
        self.parser = Parser::default();
        self.control
            .write_all(command.as_bytes())
            .map_err(LabError::Control)?;
        let started = Instant::now();
        let ended = self.follow(job, started)?;
        // It would be litter in a user's folder; elsewhere it is removed with the folder.
        let _ = fs::remove_file(folder.join(SCRIPT));
        Ok(Outcome {
            ended,
            output: std::mem::take(&mut self.parser.output),
            last_words: if self.alive {
                String::new()
            } else {
                said(&self.own_folder)
            },
            took: started.elapsed(),
            folder,
            remove: matches!(self.folders, Folders::Own),
        })
    }

    /// Cuts the power: SIGKILL to QEMU. Returns when it is gone and the flash files have their sizes again.
    pub fn kill(&mut self) {
        self.alive = false;
        self.qemu.kill();
        if self.detached {
            let _ = fs::remove_file(self.share.join(MARK));
        }
        restore_sizes(&self.flash);
    }

    /// Whether it accepts jobs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.alive
    }

    /// Console output of the guest's kernel.
    #[must_use]
    pub fn kernel_log(&self) -> String {
        read_lossy(&self.own_folder.join("kernel.log"))
    }

    /// Reads from the guest until the job has ended.
    fn follow(&mut self, job: &Job, started: Instant) -> Result<Ended, LabError> {
        let deadline = started + job.timeout;
        let mut cut_at = None;
        let mut dirty = false;
        loop {
            let now = Instant::now();
            if cut_at.is_some_and(|at| at <= now) {
                self.kill();
                return Ok(Ended::Cut);
            }
            if deadline <= now {
                self.kill();
                return Ok(Ended::TimedOut);
            }
            let next = cut_at.map_or(deadline, |at: Instant| at.min(deadline));
            let Some(words) = self.receive(next - now)? else {
                self.kill();
                return Ok(Ended::GuestEnded);
            };
            for word in words {
                match word {
                    Word::Code(code) => {
                        if dirty {
                            self.kill();
                        }
                        return Ok(Ended::Code(code));
                    }
                    Word::Dirty(_) => dirty = true,
                    Word::Ready | Word::Started => {}
                }
            }
            if let Some((text, delay)) = &job.cut
                && cut_at.is_none()
                && contains(&self.parser.output, text)
            {
                cut_at = Some(Instant::now() + *delay);
            }
        }
    }

    fn wait_until_ready(&mut self) -> Result<(), LabError> {
        // Its first message may have been sent before the connection.
        self.control.write_all(b"ping\n").map_err(LabError::Control)?;
        let deadline = Instant::now() + BOOT_TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let said = said(&self.own_folder);
                self.kill();
                let seconds = BOOT_TIMEOUT.as_secs();
                return Err(LabError::Silent { seconds, said });
            }
            match self.receive(left)? {
                Some(words) if words.contains(&Word::Ready) => return Ok(()),
                Some(_) => {}
                None => {
                    self.kill();
                    let during = "while booting".to_owned();
                    let said = said(&self.own_folder);
                    return Err(LabError::Died { during, said });
                }
            }
        }
    }

    /// The agent's next messages, none after `limit`; `None` if QEMU has ended.
    fn receive(&mut self, limit: Duration) -> Result<Option<Vec<Word>>, LabError> {
        // A limit of zero would mean no limit.
        let limit = limit.max(Duration::from_micros(100));
        self.control
            .set_read_timeout(Some(limit))
            .map_err(LabError::Control)?;
        let mut bytes = [0; 64 << 10];
        match self.control.read(&mut bytes) {
            Ok(0) => Ok(None),
            Ok(count) => Ok(Some(self.parser.push(&bytes[..count]))),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => {
                    Ok(Some(Vec::new()))
                }
                io::ErrorKind::ConnectionReset => Ok(None),
                _ => Err(LabError::Control(error)),
            },
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if self.detached && self.alive {
            return;
        }
        self.kill();
        // The keeper removes it too, but not before the caller continues.
        let _ = fs::remove_dir_all(&self.own_folder);
    }
}

/// Restores the sizes of the chips' files.
fn restore_sizes(flash: &[FlashFile]) {
    for flash in flash {
        // A file that was removed meanwhile has no size to restore.
        let _ = flash.resize(flash.size_bytes());
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}
