//! Databases under persistent names, as in the original Mobibench.
//!
//! Each run creates them anew, with the rows that it needs: data of an earlier run would determine which statements
//! find a row, and how much of the file is free. A run that fails removes the files that it created.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::spec::SqliteSpec;
use crate::error::BenchError;
use crate::prepare::kind_name;

/// SQLite's suffixes to a database name: none, journal, write-ahead log, its index.
const SUFFIXES: [&str; 4] = ["", "-journal", "-wal", "-shm"];

/// The databases of a run.
#[derive(Debug)]
pub struct NamedDatabases {
    /// The name before the numbers of thread and database.
    stem: PathBuf,
    threads: u32,
    databases: u32,
}

impl NamedDatabases {
    /// Removes files of earlier runs under these names.
    ///
    /// # Errors
    /// If something other than a file has one of the names; nothing is removed then.
    pub fn claim(spec: &SqliteSpec, prefix: &str) -> Result<Self, BenchError> {
        let named = Self {
            stem: spec.directory.join(prefix),
            threads: spec.threads,
            databases: spec.databases,
        };
        for path in named.files() {
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => {
                    let kind = kind_name(found.file_type());
                    return Err(BenchError::NotAFile { path, kind });
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(BenchError::io("stat", &path, error)),
            }
        }
        named.remove()?;
        Ok(named)
    }

    /// Path of a thread's database with this number.
    pub fn path(&self, thread: u32, database: u32) -> PathBuf {
        let mut path = self.stem.clone().into_os_string();
        path.push(format!("{thread}_{database}"));
        path.into()
    }

    /// Removes the databases with their journals and logs.
    pub fn remove(&self) -> Result<(), BenchError> {
        self.files().try_for_each(|path| remove(&path))
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let numbers =
            (0..self.threads).flat_map(|thread| (0..self.databases).map(move |database| (thread, database)));
        numbers
            .map(|(thread, database)| self.path(thread, database))
            .flat_map(|path| {
                SUFFIXES.map(|suffix| {
                    let mut name = path.clone().into_os_string();
                    name.push(suffix);
                    PathBuf::from(name)
                })
            })
    }
}

fn remove(path: &Path) -> Result<(), BenchError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(BenchError::io("unlink", path, error)),
    }
}
