//! Decodes columns of texts, and parses each distinct text once.
//!
//! Nearly all columns of texts are indices into a dictionary. The decoder would copy a text for each row, so it is given
//! a dictionary of numbers in place of the texts, and yields indices. Other columns have too many distinct texts, or
//! come from other tools.

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::basic::{ConvertedType, Encoding, LogicalType, Repetition, Type as PhysicalType};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::errors::ParquetError;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor, ColumnPath, Type};
use results::block_trace::{BlockClass, BlockType, CauseQuality, DeviceNumber, EventKind, IoMode, Operation};

use super::column::{Pages, Value, Values, by_rows, next_values, wrong_value};

/// Distinct texts outside a dictionary that are kept with their values.
const PARSED_TEXTS: usize = 16 << 10;

/// Decodes a column of texts in one row group.
pub enum TextDecoder<T> {
    Indices(ColumnReaderImpl<Int32Type>, Vec<Result<T, String>>),
    Texts(ColumnReaderImpl<ByteArrayType>, HashMap<Box<[u8]>, T>),
}

/// Pages of indices, after a dictionary of numbers: the number at index n is n.
struct IndexPages {
    numbers: Option<Page>,
    pages: Pages,
}

impl PageReader for IndexPages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        match self.numbers.take() {
            Some(numbers) => Ok(Some(numbers)),
            None => self.pages.reader.get_next_page(),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.pages.reader.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.pages.reader.skip_next_page()
    }
}

impl Iterator for IndexPages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// The texts of a dictionary, each after its length.
fn dictionary(mut page: Bytes) -> Result<Vec<Bytes>, ParquetError> {
    let mut texts = Vec::new();
    while page.has_remaining() {
        let length = page
            .try_get_u32_le()
            .ok()
            .and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| *length <= page.len()) else {
            return Err(ParquetError::General(
                "a text ends behind its dictionary".to_owned(),
            ));
        };
        texts.push(page.split_to(length));
    }
    Ok(texts)
}

impl<T: Clone> TextDecoder<T> {
    fn open(
        descriptor: ColumnDescPtr,
        mut pages: Pages,
        parse: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<Self, ParquetError> {
        if !pages.are_indices {
            let reader = ColumnReaderImpl::new(descriptor, Box::new(pages.reader));
            return Ok(Self::Texts(reader, HashMap::new()));
        }
        let Some(Page::DictionaryPage { buf, .. }) = pages.reader.get_next_page()? else {
            return Err(ParquetError::General("expected a dictionary first".to_owned()));
        };
        let texts: Vec<_> = dictionary(buf)?.iter().map(|text| parse(text)).collect();
        let count = u32::try_from(texts.len())?;
        let numbers = Page::DictionaryPage {
            buf: (0..count).flat_map(u32::to_le_bytes).collect(),
            num_values: count,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        let number = Type::primitive_type_builder("index", PhysicalType::INT32)
            .with_repetition(Repetition::OPTIONAL)
            .build()?;
        let path = ColumnPath::from("index");
        let number = ColumnDescriptor::new(Arc::new(number), descriptor.max_def_level(), 0, path);
        let pages = IndexPages {
            numbers: Some(numbers),
            pages,
        };
        let reader = ColumnReaderImpl::new(Arc::new(number), Box::new(pages));
        Ok(Self::Indices(reader, texts))
    }

    fn decode(
        &mut self,
        name: &'static str,
        rows: usize,
        parse: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Values<T> {
        let checked = |(row, text): (usize, Option<Result<T, String>>)| {
            text.transpose()
                .map_err(|problem| wrong_value(name, row, problem))
        };
        match self {
            Self::Indices(reader, texts) => {
                let (indices, levels) = next_values(reader, name, rows)?;
                let text = |index: i32| {
                    let text = usize::try_from(index).ok().and_then(|index| texts.get(index));
                    let beyond = || Err(format!("expected an index below {}, found {index}", texts.len()));
                    text.cloned().unwrap_or_else(beyond)
                };
                let texts = by_rows(rows, indices.into_iter().map(text), &levels);
                texts.enumerate().map(checked).collect()
            }
            Self::Texts(reader, parsed) => {
                let (texts, levels) = next_values(reader, name, rows)?;
                let text = |text: ByteArray| {
                    if let Some(value) = parsed.get(text.data()) {
                        return Ok(value.clone());
                    }
                    if parsed.len() >= PARSED_TEXTS {
                        parsed.clear();
                    }
                    let value = parse(text.data())?;
                    parsed.insert(text.data().into(), value.clone());
                    Ok(value)
                };
                let texts = by_rows(rows, texts.into_iter().map(text), &levels);
                texts.enumerate().map(checked).collect()
            }
        }
    }
}

pub fn utf8(text: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(text).map_err(|error| error.to_string())
}

fn word<T: FromStr<Err: Display>>(text: &[u8]) -> Result<T, String> {
    utf8(text)?.parse().map_err(|error: T::Err| error.to_string())
}

macro_rules! texts {
    ($($kind:ty: $parse:expr),*) => {
        $(impl Value for $kind {
            const EXPECTED: &'static str = "text";
            type Decoder = TextDecoder<Self>;

            fn is_type_of(column: &ColumnDescriptor) -> bool {
                let is_utf8 = match column.logical_type_ref() {
                    Some(logical) => *logical == LogicalType::String,
                    None => column.converted_type() == ConvertedType::UTF8,
                };
                is_utf8 && column.physical_type() == PhysicalType::BYTE_ARRAY
            }

            fn open(descriptor: ColumnDescPtr, pages: Pages) -> Result<Self::Decoder, ParquetError> {
                TextDecoder::open(descriptor, pages, $parse)
            }

            fn decode(decoder: &mut Self::Decoder, name: &'static str, rows: usize) -> Values<Self> {
                decoder.decode(name, rows, $parse)
            }
        })*
    };
}

texts!(
    Arc<str>: |text| utf8(text).map(Arc::from),
    BlockClass: word,
    BlockType: word,
    CauseQuality: word,
    DeviceNumber: word,
    EventKind: word,
    IoMode: word,
    Operation: word
);
