//! `SUM` of whole numbers that reports an overflow. DataFusion's own wraps: the sum of two large sizes is negative.
//!
//! Whole numbers are added in 128 bits, and the result is converted back: only a final sum beyond 64 bits is an error, not one
//! in between. Other types are left to DataFusion, and so are numbers of one group or window, as decimals of 38 digits.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, PrimitiveArray,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, Field, FieldRef, Int64Type, UInt64Type,
};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion::scalar::ScalarValue;

/// Type of sums while they grow: 38 digits hold the sum of 2^62 numbers of 64 bits.
const WIDE: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

/// The function, to be registered in place of DataFusion's.
pub fn function() -> AggregateUDF {
    AggregateUDF::from(CheckedSum::default())
}

#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct CheckedSum {
    inner: Sum,
}

/// Whether sums of this type are checked.
const fn is_checked(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int64 | DataType::UInt64)
}

/// Arguments of the accumulator that adds wide numbers.
fn wide<'a>(args: &AccumulatorArgs<'a>) -> AccumulatorArgs<'a> {
    let field = args.return_field.as_ref().clone().with_data_type(WIDE);
    AccumulatorArgs {
        return_field: Arc::new(field),
        ..args.clone()
    }
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let narrow = args.return_field.data_type().clone();
        if !is_checked(&narrow) {
            return self.inner.accumulator(args);
        }
        let inner = self.inner.accumulator(wide(&args))?;
        Ok(Box::new(Checked { inner, narrow }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let narrow = args.return_field.data_type().clone();
        if !is_checked(&narrow) || args.is_distinct {
            return self.inner.create_sliding_accumulator(args);
        }
        let inner = self.inner.create_sliding_accumulator(wide(&args))?;
        Ok(Box::new(Checked { inner, narrow }))
    }

    fn state_fields(&self, mut args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        if is_checked(args.return_field.data_type()) {
            let field: Field = args.return_field.as_ref().clone();
            args.return_field = Arc::new(field.with_data_type(WIDE));
        }
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        let narrow = args.return_field.data_type().clone();
        if !is_checked(&narrow) {
            return self.inner.create_groups_accumulator(args);
        }
        Ok(Box::new(CheckedGroups {
            sums: Vec::new(),
            filled: Vec::new(),
            narrow,
        }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }
}

/// Converts the numbers to add.
fn widened(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let wide = |values: &ArrayRef| Ok(cast_with_options(values, &WIDE, &strict)?);
    values.iter().map(wide).collect()
}

/// Converts sums back.
fn narrowed(sums: &ArrayRef, narrow: &DataType) -> Result<ArrayRef> {
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(sums, narrow, &strict).map_err(|_| {
        let sums = sums.as_primitive::<Decimal128Type>();
        let largest = sums.iter().flatten().max_by_key(|sum| sum.unsigned_abs());
        DataFusionError::Execution(format!(
            "SUM is {} and exceeds 64 bits: expected at most {} in magnitude; sum fractions, such as SUM(value / 1024.0), \
             or fewer rows",
            largest.unwrap_or(0),
            i64::MAX
        ))
    })
}

/// Adds the numbers of one group, or of a window.
#[derive(Debug)]
struct Checked {
    inner: Box<dyn Accumulator>,
    narrow: DataType,
}

impl Accumulator for Checked {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&widened(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.inner.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&narrowed(&sum, &self.narrow)?, 0)
    }

    fn size(&self) -> usize {
        self.inner.size() + size_of::<Self>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&widened(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

/// Adds the numbers of many groups. The loops over all rows of a trace are here.
struct CheckedGroups {
    sums: Vec<i128>,
    /// Groups that have a number that is not null.
    filled: Vec<bool>,
    narrow: DataType,
}

impl CheckedGroups {
    fn add<T>(&mut self, values: &PrimitiveArray<T>, groups: &[usize], filter: Option<&BooleanArray>)
    where
        T: ArrowPrimitiveType,
        i128: From<T::Native>,
    {
        for (row, (value, group)) in values.values().iter().zip(groups).enumerate() {
            if values.is_valid(row) && passes(filter, row) {
                self.sums[*group] += i128::from(*value);
                self.filled[*group] = true;
            }
        }
    }

    fn grow(&mut self, groups: usize) {
        self.sums.resize(groups, 0);
        self.filled.resize(groups, false);
    }

    /// The sums, which leave.
    fn take(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, filled) = (
            emit_to.take_needed(&mut self.sums),
            emit_to.take_needed(&mut self.filled),
        );
        let sums = Decimal128Array::new(sums.into(), Some(filled.into()));
        Ok(Arc::new(sums.with_data_type(WIDE)))
    }
}

/// Whether an aggregate's FILTER admits a row.
fn passes(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

impl GroupsAccumulator for CheckedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> Result<()> {
        self.grow(group_count);
        match values[0].as_primitive_opt::<Int64Type>() {
            Some(values) => self.add(values, groups, filter),
            None => self.add(values[0].as_primitive::<UInt64Type>(), groups, filter),
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        narrowed(&self.take(emit_to)?, &self.narrow)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.take(emit_to)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], group_count: usize) -> Result<()> {
        self.grow(group_count);
        self.add(states[0].as_primitive::<Decimal128Type>(), groups, None);
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let wide = widened(values)?;
        let numbers = wide[0].as_primitive::<Decimal128Type>().iter().enumerate();
        let kept = numbers.map(|(row, number)| number.filter(|_| passes(filter, row)));
        let kept = kept.collect::<Decimal128Array>().with_data_type(WIDE);
        Ok(vec![Arc::new(kept)])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.filled.capacity()
    }
}
