//! The tables of stored traces, for DataFusion: `formats::native` decodes the columns of a query.
//!
//! DataFusion's own reader of Parquet, with the feature `arrow` of the decoder, takes as long to build as both crates of
//! this system's trace formats together, and knows neither checks nor unfinished traces.

use std::fmt;
use std::sync::Arc;
use std::vec;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayData, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, exec_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, ReplaceChildrenOptions,
    StatisticsArgs,
};
use formats::native::columns::{EVENT_COLUMNS, REQUEST_COLUMNS, RUN_COLUMNS};
use formats::native::schema::{Column, ColumnKind, Presence};
use formats::native::{ColumnValues, NativeReadError, OpenTable, TableScan};

use crate::trace_folder::StoredTrace;

/// One table of all traces of a session.
#[derive(Debug)]
pub struct TraceTable {
    columns: &'static [Column],
    tables: Vec<OpenTable>,
}

impl TraceTable {
    /// The tables of these traces, with their names in SQL.
    pub fn all(traces: &[StoredTrace]) -> [(&'static str, Self); 3] {
        let table = |index: usize, columns| Self {
            columns,
            tables: traces.iter().map(|trace| trace.tables[index].clone()).collect(),
        };
        [
            ("requests", table(0, &REQUEST_COLUMNS)),
            ("runs", table(1, &RUN_COLUMNS)),
            ("events", table(2, &EVENT_COLUMNS)),
        ]
    }
}

#[async_trait]
impl TableProvider for TraceTable {
    fn schema(&self) -> SchemaRef {
        schema_of(self.columns)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = match projection {
            Some(chosen) => chosen.iter().map(|index| self.columns[*index]).collect(),
            None => self.columns.to_vec(),
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema_of(&columns)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Arc::new(Scan {
            columns,
            tables: self.tables.clone(),
            properties: Arc::new(properties),
        }))
    }
}

fn schema_of(columns: &[Column]) -> SchemaRef {
    let field = |column: &Column| {
        let kind = match column.kind {
            ColumnKind::Boolean => DataType::Boolean,
            ColumnKind::Int32 => DataType::Int32,
            ColumnKind::Int64 => DataType::Int64,
            ColumnKind::Text => DataType::Utf8,
        };
        Field::new(column.name, kind, column.presence == Presence::WhereKnown)
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// Reads chosen columns of a table of all traces, one trace after the other.
#[derive(Debug)]
struct Scan {
    columns: Vec<Column>,
    tables: Vec<OpenTable>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for Scan {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.columns.iter().map(|column| column.name).collect();
        write!(
            f,
            "Scan: traces={}, columns=[{}]",
            self.tables.len(),
            names.join(", ")
        )
    }
}

impl ExecutionPlan for Scan {
    fn name(&self) -> &'static str {
        "Scan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _apply: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return exec_err!("a table of traces has one partition, {partition} was asked for");
        }
        let batches = Batches {
            schema: self.schema(),
            columns: self.columns.clone(),
            tables: self.tables.clone().into_iter(),
            scan: None,
            rows_max: context.session_config().batch_size(),
        };
        let batches = tokio_stream::iter(batches);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }

    /// Joins put the smaller table into memory.
    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let rows = self
            .tables
            .iter()
            .fold(0_u64, |sum, table| sum.saturating_add(table.rows()));
        let rows = Precision::Inexact(usize::try_from(rows).unwrap_or(usize::MAX));
        Ok(Arc::new(
            Statistics::new_unknown(&self.schema()).with_num_rows(rows),
        ))
    }
}

/// The batches of a scan; ends after an error.
struct Batches {
    schema: SchemaRef,
    columns: Vec<Column>,
    tables: vec::IntoIter<OpenTable>,
    scan: Option<TableScan>,
    rows_max: usize,
}

impl Batches {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(scan) = &mut self.scan
                && let Some((rows, columns)) = scan.next(self.rows_max).map_err(trace_error)?
            {
                let arrays = columns.into_iter().map(array_of).collect::<Result<_, _>>()?;
                // Without columns, the number of rows is all there is.
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let schema = Arc::clone(&self.schema);
                return Ok(Some(RecordBatch::try_new_with_options(schema, arrays, &options)?));
            }
            let Some(table) = self.tables.next() else {
                self.scan = None;
                return Ok(None);
            };
            self.scan = Some(table.scan(self.columns.clone()));
        }
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch();
        if batch.is_err() {
            (self.tables, self.scan) = (Vec::new().into_iter(), None);
        }
        batch.transpose()
    }
}

fn trace_error(error: NativeReadError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The values of a column in a batch, checked by code that is optimised in its own crate.
fn array_of(values: ColumnValues) -> Result<ArrayRef, ArrowError> {
    let (kind, rows, buffers, known) = match values {
        ColumnValues::Booleans { values, rows, known } => {
            (DataType::Boolean, rows, vec![Buffer::from_vec(values)], known)
        }
        ColumnValues::Int32 { values, known } => (
            DataType::Int32,
            values.len(),
            vec![Buffer::from_vec(values)],
            known,
        ),
        ColumnValues::Int64 { values, known } => (
            DataType::Int64,
            values.len(),
            vec![Buffer::from_vec(values)],
            known,
        ),
        ColumnValues::Texts {
            offsets,
            bytes,
            known,
        } => {
            let rows = offsets.len() - 1;
            let buffers = vec![Buffer::from_vec(offsets), Buffer::from_vec(bytes)];
            (DataType::Utf8, rows, buffers, known)
        }
    };
    let data = ArrayData::builder(kind)
        .len(rows)
        .buffers(buffers)
        .null_bit_buffer(known.map(Buffer::from_vec));
    Ok(make_array(data.build()?))
}
