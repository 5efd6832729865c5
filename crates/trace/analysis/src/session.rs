//! A session: traces open as tables, and queries over them.
//!
//! Tables are `requests`, `runs` and `events` (`docs/formats/block-trace.md`), and the views of `sql/views`. Queries
//! may only read: statements that create, change or write anything are refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::datasource::file_format::options::ParquetReadOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use formats::native::{EVENTS_FILE, REQUESTS_FILE, RUNS_FILE};
use tokio::runtime::Runtime;
use tokio_stream::StreamExt;

use crate::AnalysisError;
use crate::named::{self, Analysis};
use crate::table::{self, Table};
use crate::trace_folder::{StoredTrace, find_traces};

/// Rows per batch. Values below the library's own 8,192 gain nothing; larger ones cost memory in wide queries.
const BATCH_ROWS: usize = 8192;

/// Memory that a sort reserves for merging its files on disk.
const SORT_MERGE_BYTES: usize = 4 << 20;

/// The tables of a trace: name in SQL, file.
const TABLES: [(&str, &str); 3] = [
    ("requests", REQUESTS_FILE),
    ("runs", RUNS_FILE),
    ("events", EVENTS_FILE),
];

/// Limits of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of all queries that run at a time, in bytes; larger sorts use temporary files.
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
}

impl Session {
    /// Opens the traces at these paths (a trace's folder, or a folder of traces).
    pub fn open(paths: &[PathBuf], limits: Limits) -> Result<Self, AnalysisError> {
        let traces = find_traces(paths)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(limits.threads.max(1))
            .thread_name("query")
            .build()
            .map_err(|source| AnalysisError::Threads { source })?;
        Self::over(Arc::new(runtime), traces, limits)
    }

    fn over(runtime: Arc<Runtime>, traces: Vec<StoredTrace>, limits: Limits) -> Result<Self, AnalysisError> {
        let context = runtime
            .block_on(context_over(&traces, limits.memory_bytes))
            .map_err(AnalysisError::query("the traces can't be opened"))?;
        Ok(Self {
            context,
            runtime,
            traces,
            limits,
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

    /// Runs a named analysis.
    pub fn run(&self, analysis: &Analysis) -> Result<Table, AnalysisError> {
        let empty = Table {
            name: analysis.name.to_owned(),
            title: analysis.title.clone(),
            about: analysis.about.clone(),
            columns: Vec::new(),
            rows: Vec::new(),
        };
        self.fill(empty, analysis.sql, &analysis.key)
            .map_err(AnalysisError::query(format!("analysis {}", analysis.name)))
    }

    /// Runs a user's query.
    pub fn query(&self, sql: &str) -> Result<Table, AnalysisError> {
        let empty = Table {
            name: "query".to_owned(),
            title: "Query".to_owned(),
            about: sql.to_owned(),
            columns: Vec::new(),
            rows: Vec::new(),
        };
        self.fill(empty, sql, &[])
            .map_err(AnalysisError::query("the query failed"))
    }

    fn fill(&self, mut table: Table, sql: &str, key: &[String]) -> Result<Table, DataFusionError> {
        self.for_each_batch(sql, |batch| {
            if table.columns.is_empty() {
                table.columns = table::columns_of(batch.schema_ref(), key);
            }
            Ok(table.append(batch)?)
        })
        .map(|schema| {
            if table.columns.is_empty() {
                table.columns = table::columns_of(&schema, key);
            }
            table
        })
    }

    /// Passes the result of a query on batch by batch, so that it is never in memory as a whole.
    pub(crate) fn for_each_batch(
        &self,
        sql: &str,
        mut take: impl FnMut(&RecordBatch) -> Result<(), DataFusionError>,
    ) -> Result<SchemaRef, DataFusionError> {
        let reads_alone = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        self.runtime.block_on(async {
            let frame = self.context.sql_with_options(sql, reads_alone).await?;
            let mut batches = frame.execute_stream().await?;
            let schema = batches.schema();
            while let Some(batch) = batches.next().await {
                take(&batch?)?;
            }
            Ok(schema)
        })
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
    // String views share the buffers of whole pages, and each batch is charged for everything that it shares: the limit
    // would seem reached at a tenth of it.
    config.options_mut().execution.parquet.schema_force_view_types = false;
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(memory_bytes)))
        .build_arc()?;
    let context = SessionContext::new_with_config_rt(config, runtime);
    for (table, file) in TABLES {
        let files: Vec<String> = traces
            .iter()
            .map(|trace| file_url(&trace.path.join(file)))
            .collect::<Result<_, _>>()?;
        let frame = context.read_parquet(files, ParquetReadOptions::default()).await?;
        context.register_table(table, frame.into_view())?;
    }
    for (file, sql) in named::VIEWS {
        let view = context.sql(sql).await?.into_view();
        context.register_table(named::view_name(file), view)?;
    }
    Ok(context)
}

/// A file's URL. Plain paths would be parsed as patterns, but `[`, `*` and `?` are valid in names of traces.
fn file_url(path: &Path) -> Result<String, DataFusionError> {
    let path = std::path::absolute(path)?;
    let mut url = String::from("file://");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                url.push(char::from(*byte))
            }
            _ => url += &format!("%{byte:02X}"),
        }
    }
    Ok(url)
}
