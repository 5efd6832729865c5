//! `tidegate nand fail`: makes single blocks of a simulated chip fail, or repairs them.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use media::{Page, Peb};
use nand::{Access, Failing, FileNand};
use serde_json::{Value, json};

use crate::{Finding, output};

/// Arguments of `tidegate nand fail`.
#[derive(Args, Debug)]
#[command(
    after_help = "Without --program, --erase and --mend it lists the failing places. As on a real chip, a failed \
                  program leaves a page that can't be read, and a failed erase a block with undefined content; \
                  the user of the chip moves the data and retires the block. `tidegate nand create` sets the \
                  probability of failures on all blocks (Faults).\n\
                  Examples:\n\
                  \x20 tidegate nand fail chip.img --program 12,13:5 --erase 7\n\
                  \x20 tidegate nand fail chip.img --mend 12"
)]
pub struct FailArguments {
    /// A simulated chip in a file
    pub file: PathBuf,
    /// Make programs of these pages fail, separated by commas: BLOCK:PAGE, or BLOCK for its first page; one page per block
    #[arg(long, value_name = "PLACE", value_delimiter = ',', value_parser = parse_place)]
    pub program: Vec<(Peb, Page)>,
    /// Make erases of these blocks fail, separated by commas
    #[arg(long, value_name = "BLOCK", value_delimiter = ',')]
    pub erase: Vec<u32>,
    /// Repair these blocks, separated by commas
    #[arg(long, value_name = "BLOCK", value_delimiter = ',')]
    pub mend: Vec<u32>,
    /// Print the failing blocks as one JSON document
    #[arg(long)]
    pub json: bool,
}

fn parse_place(text: &str) -> Result<(Peb, Page), String> {
    let (block, page) = text.split_once(':').unwrap_or((text, "0"));
    match (block.trim().parse(), page.trim().parse()) {
        (Ok(block), Ok(page)) => Ok((Peb(block), Page(page))),
        _ => Err(format!("`{text}` is no place; write for example 12 or 12:5")),
    }
}

/// Runs the command.
pub fn run(arguments: &FailArguments) -> Result<Finding> {
    let changes = [
        arguments.erase.len(),
        arguments.mend.len(),
        arguments.program.len(),
    ];
    let access = match changes.iter().sum() {
        0_usize => Access::ReadOnly,
        _ => Access::ReadWrite,
    };
    let mut chip = FileNand::open(&arguments.file, access, None)?;
    let pages = chip.model().geometry.pages_per_block();
    if let Some((peb, page)) = arguments.program.iter().find(|(_, page)| page.0 >= pages) {
        bail!("{peb} has no {page}; blocks of this chip have {pages} pages, from 0");
    }
    // All addresses are checked before any change is stored.
    let erased = arguments
        .erase
        .iter()
        .chain(&arguments.mend)
        .map(|block| Peb(*block));
    for peb in erased.chain(arguments.program.iter().map(|(peb, _)| *peb)) {
        chip.block(peb)?;
    }
    for block in &arguments.mend {
        chip.set_failing(Peb(*block), Failing::default())?;
    }
    for (peb, page) in &arguments.program {
        let failing = chip.block(*peb)?.failing;
        let program_at = Some(*page);
        chip.set_failing(
            *peb,
            Failing {
                program_at,
                ..failing
            },
        )?;
    }
    for block in &arguments.erase {
        let failing = chip.block(Peb(*block))?.failing;
        chip.set_failing(
            Peb(*block),
            Failing {
                erases: true,
                ..failing
            },
        )?;
    }
    if access == Access::ReadWrite {
        media::Nand::sync(&mut chip)?;
    }
    let places = failing_places(&chip);
    output::print_line(&match arguments.json {
        true => json!({ "failing": places }).to_string(),
        false => show(&places),
    })?;
    Ok(Finding::Nothing)
}

/// The blocks of a chip that fail on request.
pub fn failing_places(chip: &FileNand) -> Vec<Value> {
    let failing = (0_u32..).zip(chip.blocks().iter().map(|block| block.failing));
    failing
        .filter(|(_, failing)| *failing != Failing::default())
        .map(|(block, failing)| {
            json!({
                "block": block,
                "program_at_page": failing.program_at.map(|page| page.0),
                "erases": failing.erases,
            })
        })
        .collect()
}

/// One line per block.
pub fn show(places: &[Value]) -> String {
    if places.is_empty() {
        return "no place fails".to_owned();
    }
    let line = |place: &Value| {
        let program = match &place["program_at_page"] {
            Value::Null => String::new(),
            page => format!(" programs of page {page}"),
        };
        let erases = match place["erases"].as_bool() {
            Some(true) if program.is_empty() => " erases",
            Some(true) => " and erases",
            _ => "",
        };
        format!("block {}:{program}{erases} fail", place["block"])
    };
    places.iter().map(line).collect::<Vec<_>>().join("\n")
}
