//! `tidegate nand ecc`: finds the ECC layout of a dump with OOB areas, and corrects its data.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Write, sink, stdout};
use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use nand::ecc::{
    Choice, Corrected, FAMILIES, FileSource, FindOptions, Found, Layout, Shape, Source, Summary,
    copy_without_oob, find, miscorrection_log2,
};
use serde_json::{Value, json};

use super::{is_dash, progress_bar};
use crate::quantity::{parse_bytes, show_bytes};
use crate::{Finding, output};

/// Arguments of `tidegate nand ecc`.
#[derive(Args, Debug)]
#[command(
    after_help = "The layout is found by trial of those of common controllers and drivers (--list). A dump is pages in \
                  order, each followed by its OOB area. Steps with more wrong bits than the code corrects are written \
                  as they were read; they are counted and listed, and the exit code is 1.\n\
                  Examples:\n\
                  \x20 tidegate nand ecc dump.bin -o data.img\n\
                  \x20 tidegate nand ecc dump.bin --ecc omap --json\n\
                  \x20 tidegate nand ecc dump.bin --ecc bch8/512,page=2048,oob=64,ecc=2..15+14,mask=none\n\
                  \x20 tidegate nand ecc dump.bin --ecc none --shape 2k+64 -o data.img"
)]
pub struct EccArguments {
    /// A dump with OOB areas
    #[arg(required_unless_present = "list")]
    pub dump: Option<PathBuf>,
    /// Layout: auto, none (only remove OOB areas), the name of a family (--list), or a text; see docs/formats/nand-ecc.md
    #[arg(long, value_name = "auto|none|NAME|SPEC", default_value = "auto")]
    pub ecc: String,
    /// Bytes of a page and of its OOB area, such as 2k+64 [default: found by trial]
    #[arg(long, value_name = "PAGE+OOB", value_parser = parse_shape)]
    pub shape: Option<Shape>,
    /// Byte of the dump that begins the first page
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "0")]
    pub offset: u64,
    /// Bytes of the dump from there on [default: all]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub length: Option<u64>,
    /// Write the corrected data without OOB areas to this file; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// List the families of layouts
    #[arg(long, conflicts_with_all = ["dump", "output"])]
    pub list: bool,
    /// Print the result as one JSON document; with -o - it goes to standard error
    #[arg(long)]
    pub json: bool,
}

fn parse_shape(text: &str) -> Result<Shape, String> {
    let wrong = || format!("`{text}` is no page and OOB area; write for example 2k+64");
    let (page, oob) = text.split_once('+').ok_or_else(wrong)?;
    let bytes = |text: &str| {
        let bytes = u32::try_from(parse_bytes(text)?).map_err(|_| wrong())?;
        (1..=1 << 16).contains(&bytes).then_some(bytes).ok_or_else(wrong)
    };
    Ok(Shape {
        page_bytes: bytes(page)?,
        oob_bytes: bytes(oob)?,
    })
}

/// Runs the command.
pub fn run(arguments: &EccArguments) -> Result<Finding> {
    let Some(path) = arguments.dump.as_ref().filter(|_| !arguments.list) else {
        return list(arguments);
    };
    let unreadable = || format!("{} can't be read as a dump", path.display());
    let source = FileSource::new(File::open(path).with_context(unreadable)?).with_context(unreadable)?;
    let range = range(arguments, source.bytes())?;
    if arguments.ecc == "none" {
        let Some(shape) = arguments.shape else {
            bail!("--ecc none needs --shape: without ECC nothing tells the sizes of page and OOB area");
        };
        return remove_oob(arguments, &source, range, shape);
    }
    let options = FindOptions {
        range: range.clone(),
        page_bytes: arguments.shape.map(|shape| shape.page_bytes),
        oob_bytes: arguments.shape.map(|shape| shape.oob_bytes),
        block_bytes: None,
        choice: Choice::parse(&arguments.ecc).context("--ecc names no layout; --list has the known ones")?,
    };
    let found = find(&source, &options).with_context(|| format!("{}: no ECC layout", path.display()))?;
    let corrected = Corrected::new(&source, range.clone(), found.layout.clone())?;
    let summary = write(arguments, range, &mut |out, progress| {
        Ok(corrected.copy(out, progress)?)
    })?;
    let document = document(path.display().to_string(), &found, &summary);
    print(arguments, &document, &show(&document))?;
    Ok(match summary.failed_steps {
        0 => Finding::Nothing,
        _ => Finding::Something,
    })
}

/// Copies to an output and shows progress.
type Copy<'a, T> = dyn FnMut(&mut dyn Write, &mut dyn FnMut(u64)) -> Result<T> + 'a;

fn write<T>(arguments: &EccArguments, range: Range<u64>, copy: &mut Copy<'_, T>) -> Result<T> {
    let bar = progress_bar("reading", range.end - range.start);
    let mut progress = |bytes| bar.set_position(bytes);
    let result = match &arguments.output {
        None => copy(&mut sink(), &mut progress),
        Some(path) if is_dash(path) => copy(&mut stdout().lock(), &mut progress),
        Some(path) => {
            let mut result = None;
            output::to_file(path, &mut |out| {
                result = Some(copy(out, &mut progress)?);
                Ok(())
            })?;
            result.context("nothing was written")
        }
    };
    bar.finish_and_clear();
    result
}

fn range(arguments: &EccArguments, bytes: u64) -> Result<Range<u64>> {
    let length = arguments.length.unwrap_or(bytes.saturating_sub(arguments.offset));
    match arguments.offset.checked_add(length) {
        Some(end) if end <= bytes && arguments.offset <= bytes => Ok(arguments.offset..end),
        _ => bail!(
            "--offset {} with --length {length} ends after the dump, which has {bytes} bytes",
            arguments.offset
        ),
    }
}

fn remove_oob(
    arguments: &EccArguments,
    source: &FileSource,
    range: Range<u64>,
    shape: Shape,
) -> Result<Finding> {
    let copied = write(arguments, range.clone(), &mut |out, progress| {
        Ok(copy_without_oob(source, range.clone(), shape, out, progress)?)
    })?;
    let document = json!({ "pages": copied.pages, "bytes": copied.bytes, "tail_bytes": copied.tail_bytes });
    let text = format!(
        "{} in {} pages, not checked; {} bytes at the end are no whole page",
        show_bytes(copied.bytes),
        copied.pages,
        copied.tail_bytes
    );
    print(arguments, &document, &text)?;
    Ok(Finding::Nothing)
}

fn print(arguments: &EccArguments, document: &Value, text: &str) -> Result<()> {
    let text = if arguments.json {
        document.to_string()
    } else {
        text.to_owned()
    };
    if arguments.output.as_ref().is_some_and(|path| is_dash(path)) {
        output::print_error(&text);
    } else {
        output::print_line(&text)?;
    }
    Ok(())
}

fn list(arguments: &EccArguments) -> Result<Finding> {
    let families = FAMILIES.iter();
    output::print_line(&if arguments.json {
        let families = families.map(|family| json!({ "name": family.name, "about": family.about }));
        json!({ "families": families.collect::<Vec<_>>() }).to_string()
    } else {
        let lines = families.map(|family| format!("{:<18} {}", family.name, family.about));
        lines.collect::<Vec<_>>().join("\n")
    })?;
    Ok(Finding::Nothing)
}

fn document(dump: String, found: &Found, summary: &Summary) -> Value {
    let layout: &Layout = &found.layout;
    let word_bits = layout.step_bytes * 8 + layout.code.parity_bits();
    let lost: Vec<_> = summary
        .lost
        .iter()
        .map(|range| [range.start, range.end])
        .collect();
    let worst = summary.worst.iter().map(|page| {
        json!({ "page": page.page, "failed_steps": page.failed_steps, "corrected_bits": page.corrected_bits })
    });
    json!({
        "dump": dump,
        "layout": layout.to_string(),
        "family": found.family,
        "page_bytes": layout.page_bytes,
        "oob_bytes": layout.oob_bytes,
        "strength": layout.code.strength(),
        "trial": {
            "layouts": found.tried,
            "pages": found.pages,
            "steps": found.steps,
            "clean": found.clean,
            "corrected": found.corrected,
            "evidence_bits": found.evidence_bits.floor(),
        },
        "miscorrection_log2": (miscorrection_log2(layout.code, word_bits) * 10.0).round() / 10.0,
        "pages": summary.pages,
        "erased_pages": summary.erased_pages,
        "written_steps": summary.written_steps,
        "erased_steps": summary.erased_steps,
        "corrected_steps": summary.corrected_steps,
        "corrected_bits": summary.corrected_bits,
        "steps_by_bits": summary.steps_by_bits,
        "failed_steps": summary.failed_steps,
        "failed_pages": summary.failed_pages,
        "unprotected_pages": summary.unprotected_pages,
        "lost": lost,
        "worst_pages": worst.collect::<Vec<_>>(),
        "tail_bytes": summary.tail_bytes,
    })
}

fn show(document: &Value) -> String {
    let trial = &document["trial"];
    let family = match document["family"].as_str() {
        Some(name) => format!(" ({name})"),
        None => String::new(),
    };
    let mut text = format!(
        "layout     {}{family}\n\
         trial      {} of {} sampled steps fit, {} of them without a wrong bit; by accident with 2^-{}; {} layouts tried\n\
         pages      {} of {} + {} B, {} of them erased\n\
         steps      {} written, {} erased\n\
         corrected  {} bits in {} steps",
        document["layout"].as_str().unwrap_or_default(),
        trial["clean"].as_u64().unwrap_or(0) + trial["corrected"].as_u64().unwrap_or(0),
        trial["steps"],
        trial["clean"],
        trial["evidence_bits"].as_f64().unwrap_or(0.0),
        trial["layouts"],
        document["pages"],
        document["page_bytes"],
        document["oob_bytes"],
        document["erased_pages"],
        document["written_steps"],
        document["erased_steps"],
        document["corrected_bits"],
        document["corrected_steps"],
    );
    let counts = document["steps_by_bits"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let shown = counts
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(_, count)| count.as_u64() != Some(0));
    let shown: Vec<_> = shown.map(|(bits, count)| format!("{bits}: {count}")).collect();
    if !shown.is_empty() {
        let _ = write!(text, " (steps by bits: {})", shown.join(", "));
    }
    let _ = write!(
        text,
        "\nfailed     {} steps in {} pages",
        document["failed_steps"], document["failed_pages"]
    );
    if let Some(first) = document["lost"].get(0) {
        let _ = write!(
            text,
            "; the first lost bytes of the data are {} to {}",
            first[0], first[1]
        );
    }
    if document["unprotected_pages"].as_u64() != Some(0) {
        let _ = write!(
            text,
            "\nas read    {} pages, whose erased parity says that they were written without ECC",
            document["unprotected_pages"]
        );
    }
    for page in document["worst_pages"].as_array().into_iter().flatten() {
        let _ = write!(
            text,
            "\nworst      page {}: {} steps failed, {} bits corrected",
            page["page"], page["failed_steps"], page["corrected_bits"]
        );
    }
    if document["tail_bytes"].as_u64() != Some(0) {
        let _ = write!(
            text,
            "\nrest       {} bytes at the end are no whole page",
            document["tail_bytes"]
        );
    }
    text
}
