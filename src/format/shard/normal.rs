//! The normal form of arrays: equal values in equal buffers. Arrow leaves free what lies under a null and past the end of
//! a bitmap; files whose names are their digests must not depend on it.

use crate::error::Result;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, RecordBatch, StructArray, UInt32Array};
use arrow::array::{GenericListArray, MapArray, OffsetSizeTrait, RecordBatchOptions, make_array};
use arrow::buffer::{BooleanBuffer, MutableBuffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, FieldRef};
use std::sync::Arc;

/// Zeros under nulls (in children too), no bits past a bitmap's end, no bitmap without nulls. Copies only what differs.
pub fn batch(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(|array| column(array, None)).collect::<Result<Vec<_>>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &rows)?)
}

/// `hidden` has the nulls of the parents: what lies under them nobody sees, and is zero and valid.
pub fn column(array: &ArrayRef, hidden: Option<&NullBuffer>) -> Result<ArrayRef> {
    let own = array.nulls();
    let nulls = own
        .and_then(|own| bitmap(own.len(), |row| own.is_valid(row) || hidden.is_some_and(|hidden| hidden.is_null(row))));
    let unseen = NullBuffer::union(own, hidden);
    let unseen = unseen.as_ref().filter(|unseen| unseen.null_count() > 0);
    Ok(match array.data_type() {
        DataType::Null => array.clone(),
        DataType::Boolean => {
            let values = array.as_boolean().values();
            let seen = |row| unseen.is_none_or(|unseen| unseen.is_valid(row)) && values.value(row);
            Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(values.len(), seen), nulls))
        }
        DataType::Struct(fields) => {
            let children = array.as_struct().columns().iter();
            let children = children.map(|child| column(child, unseen));
            Arc::new(StructArray::try_new(fields.clone(), children.collect::<Result<_>>()?, nulls)?)
        }
        DataType::FixedSizeList(item, size) => {
            let list = array.as_fixed_size_list();
            let each = *size as usize;
            let values = list.values().slice(list.value_offset_at(0), list.len() * each);
            let unseen = unseen.map(|unseen| unseen.expand(each));
            let values = column(&values, unseen.as_ref())?;
            Arc::new(FixedSizeListArray::try_new(item.clone(), *size, values, nulls)?)
        }
        DataType::List(item) => Arc::new(list(array.as_list::<i32>(), item, unseen, nulls)?),
        DataType::LargeList(item) => Arc::new(list(array.as_list::<i64>(), item, unseen, nulls)?),
        DataType::Map(entries, sorted) => {
            let map = array.as_map();
            let rows: ArrayRef = Arc::new(map.entries().clone());
            let lists =
                GenericListArray::<i32>::try_new(entries.clone(), map.offsets().clone(), rows, map.nulls().cloned())?;
            let (_, offsets, rows, nulls) = list(&lists, entries, unseen, nulls)?.into_parts();
            Arc::new(MapArray::try_new(entries.clone(), offsets, rows.as_struct().clone(), nulls, *sorted)?)
        }
        DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => {
            let array = match unseen {
                Some(unseen) => emptied(array, unseen)?,
                None => array.clone(),
            };
            make_array(array.to_data().into_builder().nulls(nulls).build()?)
        }
        data_type => {
            let width = match data_type {
                DataType::FixedSizeBinary(width) => *width as usize,
                _ => data_type.primitive_width().unwrap_or(0),
            };
            let data = array.to_data();
            let builder = match (data.buffers(), unseen) {
                ([values], Some(unseen)) => {
                    let values = values.slice_with_length(data.offset() * width, data.len() * width);
                    let slots = || (0..unseen.len()).filter(|row| unseen.is_null(*row)).map(|row| row * width);
                    let dirty = slots().any(|at| values[at..at + width].iter().any(|byte| *byte != 0));
                    let values = match dirty {
                        false => values,
                        true => {
                            let mut zeroed = MutableBuffer::new(values.len());
                            zeroed.extend_from_slice(&values);
                            slots().for_each(|at| zeroed[at..at + width].fill(0));
                            zeroed.into()
                        }
                    };
                    data.into_builder().offset(0).buffers(vec![values])
                }
                _ => data.into_builder(),
            };
            make_array(builder.nulls(nulls).build()?)
        }
    })
}

fn list<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    item: &FieldRef,
    unseen: Option<&NullBuffer>,
    nulls: Option<NullBuffer>,
) -> Result<GenericListArray<O>> {
    let list = match unseen {
        Some(unseen) => emptied(&(Arc::new(list.clone()) as ArrayRef), unseen)?.as_list::<O>().clone(),
        None => list.clone(),
    };
    let offsets = list.offsets();
    let (from, to) = (offsets[0], offsets[list.len()]);
    let values = list.values().slice(from.as_usize(), (to - from).as_usize());
    let offsets = OffsetBuffer::new(offsets.iter().map(|offset| *offset - from).collect::<Vec<_>>().into());
    Ok(GenericListArray::try_new(item.clone(), offsets, column(&values, None)?, nulls)?)
}

/// Values of any length: those under nulls become empty.
fn emptied(array: &ArrayRef, unseen: &NullBuffer) -> Result<ArrayRef> {
    let kept = (0..array.len() as u32).map(|row| unseen.is_valid(row as usize).then_some(row));
    Ok(arrow::compute::take(array, &UInt32Array::from_iter(kept), None)?)
}

fn bitmap(rows: usize, valid: impl Fn(usize) -> bool) -> Option<NullBuffer> {
    let nulls = NullBuffer::new(BooleanBuffer::collect_bool(rows, valid));
    (nulls.null_count() > 0).then_some(nulls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, LargeStringArray, ListArray};
    use arrow::buffer::ScalarBuffer;
    use arrow::datatypes::{Field, Int32Type};

    fn same_buffers(a: ArrayRef, b: ArrayRef) {
        fn equal(a: &arrow::array::ArrayData, b: &arrow::array::ArrayData) {
            assert_eq!(a.buffers(), b.buffers());
            let bits = |data: &arrow::array::ArrayData| data.nulls().map(|nulls| nulls.inner().sliced());
            assert_eq!(bits(a), bits(b));
            a.child_data().iter().zip(b.child_data()).for_each(|(a, b)| equal(a, b));
        }
        equal(&column(&a, None).unwrap().to_data(), &column(&b, None).unwrap().to_data());
    }

    #[test]
    fn what_lies_under_nulls_and_behind_the_last_bit_does_not_count() {
        let nulls = |bits: u8| NullBuffer::new(BooleanBuffer::new(vec![bits].into(), 0, 3));
        let numbers = |hidden: i32, bits: u8| Int32Array::new(vec![1, hidden, 3].into(), Some(nulls(bits)));
        same_buffers(Arc::new(numbers(7, 0b101)), Arc::new(numbers(8, 0b1111_1101)));
        let flags = |bits: u8| BooleanArray::new(BooleanBuffer::new(vec![bits].into(), 0, 3), None);
        same_buffers(Arc::new(flags(0b101)), Arc::new(flags(0b1010_1101)));
        let text = |hidden: &str| {
            let values = LargeStringArray::from(vec!["a", hidden, "c"]);
            LargeStringArray::new(values.offsets().clone(), values.values().clone(), Some(nulls(0b101)))
        };
        same_buffers(Arc::new(text("b")), Arc::new(text("")));
        let lists = |hidden: Vec<Option<i32>>| {
            let all = [Some(vec![Some(1), None]), Some(hidden), Some(vec![])];
            let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(all);
            let (field, offsets, values, _) = lists.into_parts();
            ListArray::new(field, offsets, values, Some(nulls(0b101)))
        };
        same_buffers(Arc::new(lists(vec![Some(5)])), Arc::new(lists(vec![])));
        let field = Arc::new(Field::new("x", DataType::Int32, true));
        let structs = |hidden: i32, bits: u8| {
            let child: ArrayRef = Arc::new(numbers(hidden, bits));
            StructArray::new(vec![field.clone()].into(), vec![child], Some(nulls(0b101)))
        };
        same_buffers(Arc::new(structs(5, 0b111)), Arc::new(structs(9, 0b101)));
    }

    #[test]
    fn slices_are_as_if_built_alone() {
        let all: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(9)]),
            Some(vec![Some(1), None]),
            None,
        ]));
        let alone: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]));
        same_buffers(all.slice(1, 2), alone);
        let numbers: ArrayRef = Arc::new(Int32Array::new(ScalarBuffer::from(vec![4, 5, 6]), None));
        assert_eq!(&column(&numbers, None).unwrap(), &numbers);
    }
}
