//! `tidegate nand wear`: shows how often blocks were erased, programmed and read.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use nand::{Access, BlockState};
use report::{Column, table};
use serde_json::{Value, json};

use crate::nand_device::{Device, GeometryArguments};
use crate::{Finding, output};

/// Arguments of `tidegate nand wear`.
#[derive(Args, Debug)]
pub struct WearArguments {
    /// A chip in a file
    pub device: PathBuf,
    #[command(flatten)]
    pub geometry: GeometryArguments,
    /// List each block instead of a histogram
    #[arg(long)]
    pub blocks: bool,
    /// Print one JSON document, with each block
    #[arg(long)]
    pub json: bool,
}

/// Number of lines of the histogram.
const BUCKETS: u32 = 10;

/// Columns of the longest bar.
const BAR: usize = 50;

/// Runs the command.
pub fn run(arguments: &WearArguments) -> Result<Finding> {
    let device = Device::open(&arguments.device, Access::ReadOnly, &arguments.geometry)?;
    let Some(chip) = device.simulated() else {
        bail!(
            "{} keeps no counters of its own; `tidegate ubi info` shows the erase counters that UBI keeps there",
            arguments.device.display()
        );
    };
    let text = if arguments.json {
        json!({ "blocks": chip.blocks().iter().map(document).collect::<Vec<_>>() }).to_string()
    } else if arguments.blocks {
        list(chip.blocks())
    } else {
        histogram(chip.blocks())
    };
    output::print_line(&text)?;
    Ok(Finding::Nothing)
}

fn document(block: &BlockState) -> Value {
    json!({
        "bad": block.is_bad,
        "half_erased": block.is_half_erased,
        "programmed_bytes": block.programmed_bytes,
        "erases": block.erases,
        "programs": block.programs,
        "reads": block.reads,
        "reads_since_erase": block.reads_since_erase,
    })
}

fn list(blocks: &[BlockState]) -> String {
    let columns = [
        Column::right("block"),
        Column::right("erases"),
        Column::right("programs"),
        Column::right("reads"),
        Column::right("programmed bytes"),
        Column::left("state"),
    ];
    let row = |(number, block): (usize, &BlockState)| {
        let state = match (block.is_bad, block.is_half_erased, block.torn) {
            (true, ..) => "bad",
            (_, true, _) => "half erased",
            (_, _, Some(_)) => "torn page",
            _ => "",
        };
        vec![
            number.to_string(),
            block.erases.to_string(),
            block.programs.to_string(),
            block.reads.to_string(),
            block.programmed_bytes.to_string(),
            state.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = blocks.iter().enumerate().map(row).collect();
    table(&columns, &rows).trim_end().to_owned()
}

fn histogram(blocks: &[BlockState]) -> String {
    let erases: Vec<u32> = blocks
        .iter()
        .filter(|block| !block.is_bad)
        .map(|block| block.erases)
        .collect();
    let (Some(min), Some(max)) = (erases.iter().min(), erases.iter().max()) else {
        return "every block is bad".to_owned();
    };
    let width = ((max - min) / BUCKETS + 1).max(1);
    let total: u64 = erases.iter().map(|count| u64::from(*count)).sum();
    let blocks_counted = u64::try_from(erases.len()).unwrap_or(u64::MAX);
    let mean = total * 100 / blocks_counted;
    let mut lines = vec![
        format!(
            "erases a block: {min} to {max}, mean {}.{:02}, over {blocks_counted} good blocks",
            mean / 100,
            mean % 100
        ),
        format!("{:>17} {:>8}", "erases", "blocks"),
    ];
    let mut counts = Vec::new();
    let mut from = *min;
    while from <= *max {
        let to = from + (width - 1);
        counts.push((
            from,
            to,
            erases.iter().filter(|count| (from..=to).contains(count)).count(),
        ));
        from = to + 1;
    }
    let most = counts.iter().map(|(.., count)| *count).max().unwrap_or(1).max(1);
    for (from, to, count) in counts {
        let range = if from == to {
            from.to_string()
        } else {
            format!("{from} to {to}")
        };
        let bar = "#".repeat((count * BAR).div_ceil(most));
        lines.push(format!("{range:>17} {count:>8} {bar}").trim_end().to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_counts_every_good_block_once() {
        let block = |erases| BlockState {
            erases,
            ..BlockState::default()
        };
        let mut blocks: Vec<_> = (0..100).map(block).collect();
        blocks.push(BlockState {
            is_bad: true,
            ..block(5000)
        });
        let text = histogram(&blocks);
        assert!(
            text.starts_with("erases a block: 0 to 99, mean 49.50, over 100 good blocks"),
            "{text}"
        );
        let counted: usize = text
            .lines()
            .skip(2)
            .filter_map(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok())
            .sum();
        assert_eq!(counted, 100, "{text}");
        assert_eq!(histogram(&[block(7)]).lines().count(), 3);
    }
}
