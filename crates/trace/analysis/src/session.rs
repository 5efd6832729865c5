//! A session: traces open as tables, and queries over them.
//!
//! Tables are `requests`, `runs` and `events` (`docs/formats/block-trace.md`), and the views of `sql/views`. Queries
//! may only read: statements that create, change or write anything are refused.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::parser::ParserError;
use tokio::runtime::Runtime;
use tokio_stream::StreamExt;

use crate::json_document::JsonDocument;
use crate::named::{self, Analysis};
use crate::query_text::{self, STACK_BYTES};
use crate::table::{self, Table};
use crate::trace_folder::{StoredTrace, find_traces};
use crate::trace_table::TraceTable;
use crate::{AnalysisError, checked_sum};

/// Rows per batch. Values below the library's own 8,192 gain nothing; larger ones cost memory in wide queries.
const BATCH_ROWS: usize = 8192;

/// Memory that a sort reserves for merging its files on disk.
const SORT_MERGE_BYTES: usize = 4 << 20;

/// Limits of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of all queries that run at a time and of all results kept, in bytes; larger sorts use temporary files.
    pub memory_bytes: usize,
    /// Queries of a report that run in parallel. A single query uses one thread: DataFusion 55 otherwise splits it into
    /// partitions, which deadlock when their sorts share a bounded memory.
    pub threads: usize,
}

/// Traces open for queries.
pub struct Session {
    context: SessionContext,
    runtime: Arc<Runtime>,
    traces: Vec<StoredTrace>,
    limits: Limits,
    /// Memory of the results that callers keep: counted until the session ends.
    results: MemoryReservation,
}

impl Session {
    /// Opens the traces at these paths (a trace's folder, or a folder of traces).
    pub fn open(paths: &[PathBuf], limits: Limits) -> Result<Self, AnalysisError> {
        let traces = find_traces(paths)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(limits.threads.max(1))
            .thread_stack_size(STACK_BYTES)
            .thread_name("query")
            .build()
            .map_err(|source| AnalysisError::Threads { source })?;
        Self::over(Arc::new(runtime), traces, limits)
    }

    fn over(runtime: Arc<Runtime>, traces: Vec<StoredTrace>, limits: Limits) -> Result<Self, AnalysisError> {
        let context = runtime
            .block_on(context_over(&traces, limits.memory_bytes))
            .map_err(AnalysisError::query("the traces can't be opened"))?;
        let results = MemoryConsumer::new("results").register(&context.runtime_env().memory_pool);
        Ok(Self {
            context,
            runtime,
            traces,
            limits,
            results,
        })
    }

    /// Sessions over the same traces, one per thread of the limits, each with its share of the memory.
    pub(crate) fn split(&self) -> Result<Vec<Self>, AnalysisError> {
        let lanes = self.limits.threads.max(1);
        let share = Limits {
            memory_bytes: self.limits.memory_bytes / lanes,
            threads: 1,
        };
        (0..lanes)
            .map(|_| Self::over(Arc::clone(&self.runtime), self.traces.clone(), share))
            .collect()
    }

    /// The traces that are open, in the order given.
    #[must_use]
    pub fn traces(&self) -> &[StoredTrace] {
        &self.traces
    }

    /// Runs a named analysis. Its result counts as memory of the session.
    pub fn run(&self, analysis: &Analysis) -> Result<Table, AnalysisError> {
        self.table(&Query::named(analysis))
    }

    /// Runs a user's query. Its result counts as memory of the session.
    pub fn query(&self, sql: &str) -> Result<Table, AnalysisError> {
        self.table(&Query::of_user(sql))
    }

    /// Runs a query and gives its result as one JSON document, the same as that of a [`Table`], piece by piece: rows are
    /// not kept. After `emit` breaks, the rest is left out; after an error the document has no end.
    pub fn json(
        &self,
        query: &Query<'_>,
        mut emit: impl FnMut(&str) -> ControlFlow<()> + Send,
    ) -> Result<(), AnalysisError> {
        let mut document: Option<JsonDocument> = None;
        let mut last = ControlFlow::Continue(());
        let schema = self.for_each_batch(&query.failed, query.sql, |batch| {
            let document = document.get_or_insert_with(|| JsonDocument::new(query.empty(batch.schema_ref())));
            let rows =
                table::rows_of(batch).map_err(|error| AnalysisError::query(&query.failed)(error.into()))?;
            last = emit(&document.rows(&rows));
            Ok(last)
        })?;
        if last.is_break() {
            return Ok(());
        }
        let document = document.unwrap_or_else(|| JsonDocument::new(query.empty(&schema)));
        let _ = emit(&document.end());
        Ok(())
    }

    /// Runs a query. Its result counts as memory of the session.
    pub fn table(&self, query: &Query<'_>) -> Result<Table, AnalysisError> {
        let mut table: Option<Table> = None;
        let before = self.results.size();
        let filled = self.for_each_batch(&query.failed, query.sql, |batch| {
            let table = table.get_or_insert_with(|| query.empty(batch.schema_ref()));
            let rows =
                table::rows_of(batch).map_err(|error| AnalysisError::query(&query.failed)(error.into()))?;
            let bytes = rows.iter().map(|row| table::row_bytes(row)).sum();
            self.results
                .try_grow(bytes)
                .map_err(|_| AnalysisError::ResultTooLarge {
                    what: query.failed.clone(),
                    rows: table.rows.len(),
                    memory_bytes: self.limits.memory_bytes,
                })?;
            table.rows.extend(rows);
            Ok(ControlFlow::Continue(()))
        });
        let schema = filled.inspect_err(|_| self.results.resize(before))?;
        Ok(table.unwrap_or_else(|| query.empty(&schema)))
    }

    /// Passes the result of a query on batch by batch, so that it is never in memory as a whole, until `take` breaks.
    ///
    /// The query is planned and run in a thread with a large stack: the engine recurses once per level of it.
    pub(crate) fn for_each_batch(
        &self,
        what: &str,
        sql: &str,
        mut take: impl FnMut(&RecordBatch) -> Result<ControlFlow<()>, AnalysisError> + Send,
    ) -> Result<SchemaRef, AnalysisError> {
        query_text::check(sql)?;
        let failed = |source: DataFusionError| {
            if let DataFusionError::SQL(error, _) = source.find_root()
                && matches!(**error, ParserError::RecursionLimitExceeded)
            {
                return AnalysisError::QueryTooDeep;
            }
            if !matches!(source.find_root(), DataFusionError::ResourcesExhausted(_)) {
                return AnalysisError::query(what)(source);
            }
            AnalysisError::Memory {
                what: what.to_owned(),
                memory_bytes: self.limits.memory_bytes,
                source: Box::new(source),
            }
        };
        let reads_alone = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let run = || {
            self.runtime.block_on(async {
                let frame = self.context.sql_with_options(sql, reads_alone).await;
                let mut batches = frame.map_err(failed)?.execute_stream().await.map_err(failed)?;
                let schema = batches.schema();
                while let Some(batch) = batches.next().await {
                    if take(&batch.map_err(failed)?)?.is_break() {
                        break;
                    }
                }
                Ok(schema)
            })
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("query".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, run)
                .map_err(|source| AnalysisError::Threads { source })?;
            thread.join().unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                Err(AnalysisError::Panic {
                    what: what.to_owned(),
                    message: text.unwrap_or("no message").to_owned(),
                })
            })
        })
    }
}

/// A query with the headings of its result.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    name: &'a str,
    title: &'a str,
    about: &'a str,
    sql: &'a str,
    key: &'a [String],
    /// Start of its errors.
    failed: String,
}

impl<'a> Query<'a> {
    /// A named analysis.
    #[must_use]
    pub fn named(analysis: &'a Analysis) -> Self {
        Self {
            name: analysis.name,
            title: &analysis.title,
            about: &analysis.about,
            sql: analysis.sql,
            key: &analysis.key,
            failed: format!("analysis {}", analysis.name),
        }
    }

    /// A user's query.
    #[must_use]
    pub fn of_user(sql: &'a str) -> Self {
        Self {
            name: "query",
            title: "Query",
            about: sql,
            sql,
            key: &[],
            failed: "the query failed".to_owned(),
        }
    }

    /// Its result without rows.
    fn empty(&self, schema: &Schema) -> Table {
        Table {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            about: self.about.to_owned(),
            columns: table::columns_of(schema, self.key),
            rows: Vec::new(),
        }
    }
}

/// Creates tables and views over the traces.
async fn context_over(
    traces: &[StoredTrace],
    memory_bytes: usize,
) -> Result<SessionContext, DataFusionError> {
    let mut config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(BATCH_ROWS);
    // Memory that a sort reserves to merge its files; the default is meant for larger pools.
    config.options_mut().execution.sort_spill_reservation_bytes = SORT_MERGE_BYTES;
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(memory_bytes)))
        .build_arc()?;
    let context = SessionContext::new_with_config_rt(config, runtime);
    context.register_udaf(checked_sum::function());
    for (name, table) in TraceTable::all(traces) {
        context.register_table(name, Arc::new(table))?;
    }
    for (file, sql) in named::VIEWS {
        let view = context.sql(sql).await?.into_view();
        context.register_table(named::view_name(file), view)?;
    }
    Ok(context)
}
