"""Runs each named analysis on Spark and by tidegate over one folder of traces, and compares the tables.

usage: spark.py TIDEGATE SQL_FOLDER TRACES [NAME...]

Views and analyses are read from SQL_FOLDER as they are: a view's name is what follows the number in its file's name.
Whole numbers and texts must be equal; others may differ in the last of 15 digits, as sums of an average may be added in
another order. NAMEs: these analyses alone. Exit code 1 when a table differs.
"""

import json
import math
import pathlib
import subprocess
import sys
import time

from pyspark.sql import SparkSession


def spark_over(sql_folder, traces):
    spark = (
        SparkSession.builder.master("local[*]")
        .appName("tidegate analyses")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for table in ("requests", "runs", "events"):
        spark.read.parquet(f"{traces}/*/{table}.parquet").createOrReplaceTempView(table)
    for path in sorted((sql_folder / "views").glob("*.sql")):
        spark.sql(path.read_text()).createOrReplaceTempView(path.stem.split("_", 1)[1])
    return spark


def equal(one, other):
    if isinstance(one, float) or isinstance(other, float):
        return one is not None and other is not None and math.isclose(one, other, rel_tol=1e-14)
    return one == other


def difference(ours, theirs):
    """Returns the first difference of two tables, or None."""
    columns = [column["name"] for column in ours["columns"]]
    if columns != theirs.columns:
        return f"columns: {columns} and {theirs.columns}"
    rows = [list(row) for row in theirs.collect()]
    if len(rows) != len(ours["rows"]):
        return f"{len(ours['rows'])} rows and {len(rows)} of Spark"
    for number, (row, other) in enumerate(zip(ours["rows"], rows)):
        for column, one, two in zip(columns, row, other):
            if not equal(one, two):
                return f"row {number}, {column}: {one!r} and {two!r} of Spark; row: {row}"
    return None


def main():
    tidegate, sql_folder, traces, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    missing = [name for name in names if not (sql_folder / f"{name}.sql").is_file()]
    if missing:
        sys.exit(f"no such analysis: {', '.join(missing)}")
    spark = spark_over(sql_folder, traces)
    requests = spark.table("requests").count()
    runs = spark.table("runs").count()
    print(f"{requests:,} requests and {runs:,} runs, Spark {spark.version}")
    failed, rows = 0, 0
    for path in sorted(sql_folder.glob("*.sql")):
        if names and path.stem not in names:
            continue
        started = time.monotonic()
        query = [tidegate, "trace", "query", traces, "--named", path.stem, "--json", "--memory", "1g"]
        ours = json.loads(subprocess.run(query, check=True, capture_output=True).stdout)
        halfway = time.monotonic()
        found = difference(ours, spark.sql(path.read_text()))
        ended = time.monotonic()
        rows += len(ours["rows"])
        failed += found is not None
        times = f"{halfway - started:.1f} s, Spark {ended - halfway:.1f} s"
        print(f"{path.stem:24} {len(ours['rows']):4} rows  {times}  {'differs: ' + found if found else 'equal'}", flush=True)
    spark.stop()
    if not rows:
        failed = 1
        print("no analysis had a row: nothing was compared")
    sys.exit(1 if failed else 0)


main()
