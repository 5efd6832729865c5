//! Writes a generated trace, for measurements and for the test on Spark:
//! `generate_trace FOLDER REQUESTS [SEED]` makes the trace FOLDER, whose name is its id.

#[path = "../tests/generator/mod.rs"]
mod generator;

use std::path::PathBuf;

use generator::{Spec, write_trace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, requests, seed @ ..] = words.as_slice() else {
        return Err("usage: generate_trace FOLDER REQUESTS [SEED]".into());
    };
    let folder = PathBuf::from(folder);
    let name = folder
        .file_stem()
        .ok_or("the folder has no name")?
        .to_string_lossy()
        .into_owned();
    let spec = Spec {
        seed: seed.first().map_or(Ok(1), |seed| seed.parse())?,
        requests: requests.parse()?,
        name: &name,
    };
    Ok(write_trace(&folder, spec)?)
}
