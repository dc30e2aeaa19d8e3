//! Everything that a pointer of the caller can be: a handle, a text, bytes, an array, a struct with
//! a size, a place for a result. All casts and all looks at foreign memory are here.
//!
//! A pointer that is NULL or not aligned, and a length that cannot be, are errors in every build.
//! That what a good-looking pointer points to is there, is the caller's promise: it comes in with
//! [`Caller::new`], which only the entries call.
#![expect(unsafe_code, reason = "the memory of the caller")]

use crate::last_error::Failure;
use crate::status::slipring_status::*;
use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU8, Ordering};

/// The caller of an entry, while it runs. Turns what the caller gave into what Rust can use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'c>(PhantomData<&'c ()>);

impl<'c> Caller<'c> {
    /// # Safety
    /// For `'c`, every pointer handed to the methods is NULL or points to what its type says (an
    /// array as many as its length says), which nobody else changes, and no handle is freed.
    pub(crate) unsafe fn new() -> Self {
        Self(PhantomData)
    }

    /// A handle or a struct.
    #[inline]
    pub(crate) fn get<T>(self, pointer: *const T, what: &str) -> Result<&'c T, Failure> {
        let pointer = check(pointer.cast_mut(), what)?;
        // SAFETY: checked, and the promise of `new`.
        Ok(unsafe { pointer.as_ref() })
    }

    /// A struct that may be left out.
    pub(crate) fn optional<T>(
        self,
        pointer: *const T,
        what: &str,
    ) -> Result<Option<&'c T>, Failure> {
        if pointer.is_null() { Ok(None) } else { self.get(pointer, what).map(Some) }
    }

    /// An array. NULL is as good as any for an empty one.
    #[inline]
    pub(crate) fn array<T>(
        self,
        pointer: *const T,
        len: usize,
        what: &str,
    ) -> Result<&'c [T], Failure> {
        if len == 0 {
            return Ok(&[]);
        }
        let first = check(pointer.cast_mut(), what)?;
        if len > isize::MAX as usize / size_of::<T>().max(1) {
            return Err(Failure::invalid(format_args!("{what}: {len} cannot be a length")));
        }
        // SAFETY: checked, and the promise of `new`.
        Ok(unsafe { slice::from_raw_parts(first.as_ptr(), len) })
    }

    /// A text.
    #[inline]
    pub(crate) fn text(
        self,
        pointer: *const c_char,
        len: usize,
        what: &str,
    ) -> Result<&'c str, Failure> {
        let bytes = self.array(pointer.cast::<u8>(), len, what)?;
        str::from_utf8(bytes).map_err(|error| {
            let position = error.valid_up_to();
            Failure::error_at(
                SLIPRING_EUTF8,
                Some(position),
                format_args!("{what} is not UTF-8 at byte {position}"),
            )
        })
    }

    /// A text that is left out where its pointer is NULL.
    pub(crate) fn optional_text(
        self,
        pointer: *const c_char,
        len: usize,
        what: &str,
    ) -> Result<Option<&'c str>, Failure> {
        if pointer.is_null() && len == 0 {
            return Ok(None);
        }
        self.text(pointer, len, what).map(Some)
    }

    /// A place for a result.
    #[inline]
    pub(crate) fn out<T>(self, pointer: *mut T, what: &str) -> Result<Out<'c, T>, Failure> {
        check(pointer, what)?;
        Ok(Out(pointer, PhantomData))
    }

    /// A place for a result that may be left out.
    #[inline]
    pub(crate) fn optional_out<T>(
        self,
        pointer: *mut T,
        what: &str,
    ) -> Result<Out<'c, T>, Failure> {
        if pointer.is_null() { Ok(Out(pointer, PhantomData)) } else { self.out(pointer, what) }
    }

    /// A place for up to `len` results.
    pub(crate) fn out_array<T: Copy>(
        self,
        pointer: *mut T,
        len: usize,
        what: &str,
    ) -> Result<OutArray<'c, T>, Failure> {
        self.array(pointer.cast_const().cast::<std::mem::MaybeUninit<T>>(), len, what)?;
        Ok(OutArray { pointer, len, place: PhantomData })
    }

    /// The same, which may be left out.
    pub(crate) fn optional_out_array<T: Copy>(
        self,
        pointer: *mut T,
        len: usize,
        what: &str,
    ) -> Result<OutArray<'c, T>, Failure> {
        self.out_array(pointer, if pointer.is_null() { 0 } else { len }, what)
    }

    /// A struct whose first member is its size: what it has, and the defaults of what it lacks.
    pub(crate) fn sized<T: Versioned>(self, pointer: *const T, what: &str) -> Result<T, Failure> {
        let mut value = T::defaults();
        if pointer.is_null() {
            return Ok(value);
        }
        let size = *self.get(pointer.cast::<u32>(), what)? as usize;
        check(pointer.cast_mut(), what)?;
        check_size::<T>(size, what)?;
        // SAFETY: `size` bytes are there by the promise of `new`, and no more than a `T` has; every
        // bit pattern is a `T`.
        unsafe {
            ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut value).cast::<u8>(), size);
        }
        Ok(value)
    }

    /// Fills a struct of `size` bytes whose first member is its size with the defaults.
    pub(crate) fn init<T: Versioned>(
        self,
        pointer: *mut T,
        size: usize,
        what: &str,
    ) -> Result<(), Failure> {
        check(pointer, what)?;
        check_size::<T>(size, what)?;
        let value = T::defaults();
        // SAFETY: `size` bytes are there by the promise of `new`, and no more than a `T` has.
        unsafe {
            ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), pointer.cast::<u8>(), size);
            pointer.cast::<u32>().write(size as u32);
        }
        Ok(())
    }

    /// Writes the first `size` bytes of `value`: a struct of results that may grow.
    pub(crate) fn write_sized<T: Copy>(
        self,
        pointer: *mut T,
        size: usize,
        value: T,
        what: &str,
    ) -> Result<(), Failure> {
        check(pointer, what)?;
        if size > size_of::<T>() {
            return Err(Failure::invalid(format_args!(
                "{what}: this library knows {} of its {size} bytes",
                size_of::<T>()
            )));
        }
        // SAFETY: `size` bytes are there by the promise of `new`, and no more than a `T` has.
        unsafe {
            ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), pointer.cast::<u8>(), size);
        }
        Ok(())
    }

    /// Takes the handle out of the caller's variable, which becomes NULL.
    pub(crate) fn take<T>(self, pointer: *mut *mut T) -> Option<Box<T>> {
        let handle = self.take_raw(pointer)?;
        // SAFETY: every handle comes out of a box (`Out::give`), and its owner gives it back once.
        Some(unsafe { Box::from_raw(handle.as_ptr()) })
    }

    fn take_raw<T>(self, pointer: *mut *mut T) -> Option<NonNull<T>> {
        if pointer.is_null() || !pointer.is_aligned() {
            return None;
        }
        // SAFETY: checked, and the promise of `new`.
        let handle = unsafe { pointer.replace(ptr::null_mut()) };
        NonNull::new(handle).filter(|handle| handle.is_aligned())
    }

    /// Frees a handle that is used by one call at a time: now, or when the call that is using it
    /// returns.
    pub(crate) fn free_exclusive<T: Handle>(self, pointer: *mut *mut T) {
        let Some(handle) = self.take_raw(pointer) else { return };
        // SAFETY: a handle of the caller, who gives it back once.
        let state = unsafe { &handle.as_ref().exclusive().state };
        if state.swap(FREED, Ordering::AcqRel) == IDLE {
            // SAFETY: as in `take`; no call is using it.
            drop(unsafe { Box::from_raw(handle.as_ptr()) });
        }
    }

    /// A handle for the time of this call alone.
    #[inline]
    pub(crate) fn exclusive<T: Handle>(
        self,
        pointer: *mut T,
        what: &str,
    ) -> Result<Exclusively<'c, T>, Failure> {
        let handle = check(pointer, what)?;
        // SAFETY: checked, and the promise of `new`.
        let state = unsafe { &handle.as_ref().exclusive().state };
        if state.compare_exchange(IDLE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(Failure::error(
                SLIPRING_EBUSY,
                format_args!("{what}: another call on this handle is running"),
            ));
        }
        Ok(Exclusively { handle, call: PhantomData })
    }
}

#[inline]
fn check<T>(pointer: *mut T, what: &str) -> Result<NonNull<T>, Failure> {
    let Some(pointer) = NonNull::new(pointer) else {
        return Err(Failure::invalid(format_args!("{what} is NULL")));
    };
    if !pointer.is_aligned() {
        return Err(Failure::invalid(format_args!("{what} is not aligned")));
    }
    Ok(pointer)
}

fn check_size<T: Versioned>(size: usize, what: &str) -> Result<(), Failure> {
    if (T::FIRST_BYTES..=size_of::<T>()).contains(&size) {
        return Ok(());
    }
    Err(Failure::invalid(format_args!(
        "{what}: a size of {size} bytes is not in {}..={}: use the _init function",
        T::FIRST_BYTES,
        size_of::<T>()
    )))
}

/// A struct of options, whose first member is `struct_size: u32`.
///
/// # Safety
/// It is `repr(C)`, begins with a `u32`, and every bit pattern is one.
pub(crate) unsafe trait Versioned: Copy {
    /// Its size in the first version of the library that has it.
    const FIRST_BYTES: usize;

    /// What an option is that is not set.
    fn defaults() -> Self;
}

/// A place for a result, written when the call has succeeded.
#[derive(Debug)]
pub(crate) struct Out<'c, T>(*mut T, PhantomData<&'c mut T>);

impl<T> Out<'_, T> {
    #[inline]
    pub(crate) fn write(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: checked by `Caller::out`, and the promise of `Caller::new`.
            unsafe { self.0.write(value) };
        }
    }
}

impl<T> Out<'_, *mut T> {
    /// Hands out a new handle.
    pub(crate) fn give(self, value: T) {
        if !self.0.is_null() {
            self.write(Box::into_raw(Box::new(value)));
        }
    }

    /// Hands out a handle that is in its box already.
    pub(crate) fn give_box(self, value: Box<T>) {
        self.write(Box::into_raw(value));
    }
}

/// A place for several results.
#[derive(Debug)]
pub(crate) struct OutArray<'c, T> {
    pointer: *mut T,
    len: usize,
    place: PhantomData<&'c mut T>,
}

impl<T: Copy> OutArray<'_, T> {
    /// Writes what fits; returns how many there are.
    pub(crate) fn fill(self, values: impl Iterator<Item = T>) -> usize {
        let mut count = 0;
        for value in values {
            if count < self.len {
                // SAFETY: below the length that `Caller::out_array` has checked.
                unsafe { self.pointer.add(count).write(value) };
            }
            count += 1;
        }
        count
    }
}

const IDLE: u8 = 0;
const BUSY: u8 = 1;
/// Freed while a call was using it: that call frees it.
const FREED: u8 = 2;

/// What one call at a time may use.
#[derive(Debug)]
pub(crate) struct Exclusive<T> {
    state: AtomicU8,
    value: UnsafeCell<T>,
}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { state: AtomicU8::new(IDLE), value: UnsafeCell::new(value) }
    }
}

/// A handle that is used by one call at a time.
pub(crate) trait Handle {
    /// What is in it.
    type Value;

    fn exclusive(&self) -> &Exclusive<Self::Value>;
}

/// A call that is using a handle alone.
pub(crate) struct Exclusively<'c, T: Handle> {
    handle: NonNull<T>,
    call: PhantomData<&'c T>,
}

impl<T: Handle> Exclusively<'_, T> {
    fn cell(&self) -> &Exclusive<T::Value> {
        self.handle().exclusive()
    }

    /// The handle itself.
    pub(crate) fn handle(&self) -> &T {
        // SAFETY: a handle is freed by the call that uses it, which is this one.
        unsafe { self.handle.as_ref() }
    }

    /// Whether somebody has freed the handle meanwhile.
    pub(crate) fn is_freed(&self) -> bool {
        self.cell().state.load(Ordering::Acquire) == FREED
    }
}

impl<T: Handle> Deref for Exclusively<'_, T> {
    type Target = T::Value;

    fn deref(&self) -> &T::Value {
        // SAFETY: the state says that this call is the only one.
        unsafe { &*self.cell().value.get() }
    }
}

impl<T: Handle> DerefMut for Exclusively<'_, T> {
    fn deref_mut(&mut self) -> &mut T::Value {
        // SAFETY: the state says that this call is the only one.
        unsafe { &mut *self.cell().value.get() }
    }
}

impl<T: Handle> Drop for Exclusively<'_, T> {
    fn drop(&mut self) {
        let state = &self.cell().state;
        if state.compare_exchange(BUSY, IDLE, Ordering::Release, Ordering::Acquire).is_err() {
            // SAFETY: the handle came out of a box, and whoever freed it left that to this call.
            drop(unsafe { Box::from_raw(self.handle.as_ptr()) });
        }
    }
}

/// Copies `text` and a NUL to `buffer`, cutting off whole characters; returns the text's length.
///
/// # Safety
/// `buffer` is NULL or has `buffer_len` bytes.
pub(crate) unsafe fn copy_text(text: &str, buffer: *mut c_char, buffer_len: usize) -> usize {
    if !buffer.is_null() && buffer_len > 0 {
        let mut fits = text.len().min(buffer_len - 1);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        // SAFETY: `fits + 1` bytes are in the buffer.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), fits);
            buffer.add(fits).write(0);
        }
    }
    text.len()
}
