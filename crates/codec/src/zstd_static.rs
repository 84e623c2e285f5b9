//! zstd's contexts and digested dictionaries in memory that Rust allocates.
//!
//! zstd would take its memory from C's `malloc`; here every context and digest
//! lives in one buffer from the process's global allocator, reserved once, so
//! that it is counted with everything else and no call allocates. What needs
//! more than was reserved gets an error from zstd, never memory.
//!
//! All of this crate's unsafe code but two calls in `stream.rs` is here. The
//! invariant behind most blocks: `ctx` points into `memory`, which is neither
//! moved (it is boxed) nor freed while the struct lives.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use zstd_safe::zstd_sys as sys;

/// The window, as a power of two, of everything zstd packs here: one segment.
pub(crate) const WINDOW_LOG_MAX: u32 = 17;

/// The first bytes of every zstd frame; ours are stored without.
pub(crate) const MAGIC_BYTES: usize = 4;

/// zstd's own word on what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("zstd: {}", zstd_safe::get_error_name(*.0))]
pub struct ZstdError(usize);

fn check(code: usize) -> Result<usize, ZstdError> {
    // SAFETY: `ZSTD_isError` only looks at the number.
    if unsafe { sys::ZSTD_isError(code) } != 0 { Err(ZstdError(code)) } else { Ok(code) }
}

/// One buffer, aligned as zstd asks (8 bytes), not touched until zstd does.
struct Memory(Box<[MaybeUninit<u64>]>);

impl Memory {
    fn reserve(bytes: usize) -> Self {
        Self(Box::new_uninit_slice(bytes.div_ceil(8)))
    }

    fn bytes(&self) -> usize {
        self.0.len() * 8
    }

    fn as_mut_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

/// zstd's numbers for a level, an input length and a dictionary length, the
/// window held to a segment and the tables made smaller until a context of
/// `budget` bytes holds them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters(sys::ZSTD_compressionParameters);

impl Parameters {
    pub(crate) fn fit(level: i32, raw_len: usize, dictionary_len: usize, budget: usize) -> Self {
        // The stronger strategies need room whatever their tables are: where there
        // is too little, the strongest level that fits takes their place.
        let mut level = level;
        let mut p = loop {
            let fitted = Self::with_smaller_tables(level, raw_len, dictionary_len, budget);
            if fitted.context_bytes() <= budget {
                return fitted;
            }
            if level <= 1 {
                break fitted.0;
            }
            level -= 1;
        };
        p.strategy = sys::ZSTD_strategy::ZSTD_fast;
        p.minMatch = p.minMatch.max(4);
        while Self(p).context_bytes() > budget && p.windowLog > 10 {
            p.windowLog -= 1;
        }
        Self(p)
    }

    /// A level's numbers, its tables made smaller until they fit or are as small as
    /// they get.
    fn with_smaller_tables(
        level: i32,
        raw_len: usize,
        dictionary_len: usize,
        budget: usize,
    ) -> Self {
        // SAFETY: a pure function of numbers. A length of 0 would mean unknown.
        let mut p = unsafe { sys::ZSTD_getCParams(level, raw_len.max(1) as u64, dictionary_len) };
        p.windowLog = p.windowLog.min(WINDOW_LOG_MAX);
        p.hashLog = p.hashLog.min(p.windowLog + 2);
        p.chainLog = p.chainLog.min(p.windowLog + 2);
        while Self(p).context_bytes() > budget && (p.hashLog > 8 || p.chainLog > 8) {
            if p.chainLog >= p.hashLog { p.chainLog -= 1 } else { p.hashLog -= 1 }
        }
        Self(p)
    }

    /// The bytes of a context that packs with these.
    pub(crate) fn context_bytes(&self) -> usize {
        // SAFETY: a pure function of numbers.
        unsafe { sys::ZSTD_estimateCCtxSize_usingCParams(self.0) }
    }
}

/// A context that packs.
pub(crate) struct Compressor {
    ctx: NonNull<sys::ZSTD_CCtx>,
    memory: Memory,
}

// SAFETY: the context is plain memory owned by the struct, bound to no thread.
unsafe impl Send for Compressor {}

impl Compressor {
    /// A context of `bytes` bytes (at least what zstd's smallest needs).
    pub(crate) fn reserve(bytes: usize) -> Self {
        let floor = Parameters::fit(1, 1024, 0, 0).context_bytes();
        let mut memory = Memory::reserve(bytes.max(floor));
        let len = memory.bytes();
        // SAFETY: the buffer is 8-byte aligned, `len` long, and outlives the context.
        let ctx = unsafe { sys::ZSTD_initStaticCCtx(memory.as_mut_ptr(), len) };
        let ctx = NonNull::new(ctx).expect("the floor is what zstd itself estimates");
        Self { ctx, memory }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    fn set(&mut self, parameter: sys::ZSTD_cParameter, value: i32) -> Result<(), ZstdError> {
        // SAFETY: `ctx` is a live context.
        check(unsafe { sys::ZSTD_CCtx_setParameter(self.ctx.as_ptr(), parameter, value) })?;
        Ok(())
    }

    /// Appends `raw` as one frame without magic number, sizes and checksum.
    pub(crate) fn pack(
        &mut self,
        parameters: &Parameters,
        dictionary: Option<&PackDigest>,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ZstdError> {
        use sys::ZSTD_cParameter as Set;
        // SAFETY: `ctx` is a live context; the digest, if any, outlives the
        // call, and this reset forgets the digest of the call before.
        unsafe {
            sys::ZSTD_CCtx_reset(
                self.ctx.as_ptr(),
                sys::ZSTD_ResetDirective::ZSTD_reset_session_and_parameters,
            );
            let digest = dictionary.map_or(std::ptr::null(), PackDigest::as_ptr);
            check(sys::ZSTD_CCtx_refCDict(self.ctx.as_ptr(), digest))?;
        }
        let p = parameters.0;
        self.set(
            Set::ZSTD_c_experimentalParam2,
            sys::ZSTD_format_e::ZSTD_f_zstd1_magicless as i32,
        )?;
        self.set(Set::ZSTD_c_contentSizeFlag, 0)?;
        self.set(Set::ZSTD_c_dictIDFlag, 0)?;
        self.set(Set::ZSTD_c_windowLog, p.windowLog as i32)?;
        self.set(Set::ZSTD_c_hashLog, p.hashLog as i32)?;
        self.set(Set::ZSTD_c_chainLog, p.chainLog as i32)?;
        self.set(Set::ZSTD_c_searchLog, p.searchLog as i32)?;
        self.set(Set::ZSTD_c_minMatch, p.minMatch as i32)?;
        self.set(Set::ZSTD_c_targetLength, p.targetLength as i32)?;
        self.set(Set::ZSTD_c_strategy, p.strategy as i32)?;
        let bound = zstd_safe::compress_bound(raw.len());
        let ctx = self.ctx.as_ptr();
        // SAFETY: zstd reads `raw` and writes at most `len` bytes at `to`.
        append(out, bound, |to, len| unsafe {
            check(sys::ZSTD_compress2(ctx, to, len, raw.as_ptr().cast(), raw.len()))
        })
    }

    /// Begins a frame that is packed piece by piece with [`Self::pack_piece`].
    pub(crate) fn begin(&mut self, parameters: &Parameters) -> Result<(), ZstdError> {
        let parameters = sys::ZSTD_parameters {
            cParams: parameters.0,
            fParams: sys::ZSTD_frameParameters {
                contentSizeFlag: 0,
                checksumFlag: 0,
                noDictIDFlag: 1,
            },
        };
        // SAFETY: `ctx` is a live context; no dictionary is passed. The reset
        // forgets the digest of the call before.
        unsafe {
            sys::ZSTD_CCtx_reset(
                self.ctx.as_ptr(),
                sys::ZSTD_ResetDirective::ZSTD_reset_session_and_parameters,
            );
            check(sys::ZSTD_compressBegin_advanced(
                self.ctx.as_ptr(),
                std::ptr::null(),
                0,
                parameters,
                sys::ZSTD_CONTENTSIZE_UNKNOWN as u64,
            ))?;
        }
        Ok(())
    }

    /// Packs the next piece of the frame begun. zstd looks back into earlier
    /// pieces where they lie, without a copy.
    ///
    /// # Safety
    /// Every piece given since [`Self::begin`] must stay where it is, unchanged,
    /// until the frame is finished or abandoned.
    pub(crate) unsafe fn pack_piece(
        &mut self,
        piece: &[u8],
        last: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), ZstdError> {
        // Room for one block of stored bytes more than the bound: the frame's
        // header and its end come with the first and the last piece.
        let bound = zstd_safe::compress_bound(piece.len()) + 32;
        let ctx = self.ctx.as_ptr();
        let call = if last { sys::ZSTD_compressEnd } else { sys::ZSTD_compressContinue };
        // SAFETY: zstd reads the piece and earlier ones (the caller's promise)
        // and writes at most `len` bytes at `to`.
        append(out, bound, |to, len| unsafe {
            check(call(ctx, to, len, piece.as_ptr().cast(), piece.len()))
        })
    }
}

/// A context that unpacks.
pub(crate) struct Decompressor {
    ctx: NonNull<sys::ZSTD_DCtx>,
    memory: Memory,
}

// SAFETY: the context is plain memory owned by the struct, bound to no thread.
unsafe impl Send for Decompressor {}

impl Decompressor {
    pub(crate) fn reserve() -> Self {
        // SAFETY: a pure function.
        let mut memory = Memory::reserve(unsafe { sys::ZSTD_estimateDCtxSize() });
        let len = memory.bytes();
        // SAFETY: the buffer is 8-byte aligned, `len` long, and outlives the context.
        let ctx = unsafe { sys::ZSTD_initStaticDCtx(memory.as_mut_ptr(), len) };
        let ctx = NonNull::new(ctx).expect("the size is what zstd itself estimates");
        Self { ctx, memory }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    fn reset(&mut self) -> Result<(), ZstdError> {
        // SAFETY: `ctx` is a live context.
        unsafe {
            check(sys::ZSTD_DCtx_reset(
                self.ctx.as_ptr(),
                sys::ZSTD_ResetDirective::ZSTD_reset_session_and_parameters,
            ))?;
            check(sys::ZSTD_DCtx_setParameter(
                self.ctx.as_ptr(),
                sys::ZSTD_dParameter::ZSTD_d_experimentalParam1,
                sys::ZSTD_format_e::ZSTD_f_zstd1_magicless as i32,
            ))?;
        }
        Ok(())
    }

    /// Appends what `frame` unpacks to, at most `raw_len` bytes; how many.
    pub(crate) fn unpack(
        &mut self,
        dictionary: Option<&UnpackDigest>,
        frame: &[u8],
        raw_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, ZstdError> {
        self.reset()?;
        let ctx = self.ctx.as_ptr();
        let digest = dictionary.map_or(std::ptr::null(), UnpackDigest::as_ptr);
        // SAFETY: the digest outlives the call and the reset at the start of
        // the next call forgets it.
        check(unsafe { sys::ZSTD_DCtx_refDDict(ctx, digest) })?;
        let before = out.len();
        // SAFETY: zstd reads `frame` and writes at most `len` bytes at `to`.
        append(out, raw_len, |to, _| unsafe {
            check(sys::ZSTD_decompressDCtx(ctx, to, raw_len, frame.as_ptr().cast(), frame.len()))
        })?;
        Ok(out.len() - before)
    }

    /// Begins a frame that is unpacked block by block with [`Self::step`].
    pub(crate) fn begin(&mut self) -> Result<(), ZstdError> {
        self.reset()?;
        // SAFETY: `ctx` is a live context.
        check(unsafe { sys::ZSTD_decompressBegin(self.ctx.as_ptr()) })?;
        Ok(())
    }

    /// How many bytes [`Self::step`] wants next; 0 when the frame is complete.
    pub(crate) fn wants(&mut self) -> usize {
        // SAFETY: `ctx` is a live context.
        unsafe { sys::ZSTD_nextSrcSizeToDecompress(self.ctx.as_ptr()) }
    }

    /// Takes exactly the bytes wanted and writes what they unpack to at the
    /// front of `to`; how many.
    ///
    /// # Safety
    /// What was written since [`Self::begin`] must stay where it is, unchanged,
    /// for as long as later blocks may look back at it: zstd reads the run of
    /// memory written last and the run before it.
    pub(crate) unsafe fn step(
        &mut self,
        wanted: &[u8],
        to: &mut [MaybeUninit<u8>],
    ) -> Result<usize, ZstdError> {
        // SAFETY: reads `wanted` and earlier output (the caller's promise),
        // writes into `to` only.
        check(unsafe {
            sys::ZSTD_decompressContinue(
                self.ctx.as_ptr(),
                to.as_mut_ptr().cast(),
                to.len(),
                wanted.as_ptr().cast(),
                wanted.len(),
            )
        })
    }
}

/// Grows `out` by what `write(pointer, room)` says it wrote, with room for `bytes`.
fn append(
    out: &mut Vec<u8>,
    bytes: usize,
    write: impl FnOnce(*mut c_void, usize) -> Result<usize, ZstdError>,
) -> Result<(), ZstdError> {
    out.reserve(bytes);
    let spare = out.spare_capacity_mut();
    let room = spare.len();
    let written = write(spare.as_mut_ptr().cast(), room)?;
    assert!(written <= room, "zstd wrote within the room it was given");
    // SAFETY: `written` bytes past the length have just been initialised.
    unsafe { out.set_len(out.len() + written) };
    Ok(())
}

/// A digest that zstd made in memory of ours, and the bytes that it refers to.
/// Immutable once made, hence shared.
struct Digest<T> {
    ptr: NonNull<T>,
    memory: Memory,
    _content: Arc<[u8]>,
}

// SAFETY: zstd only reads a digest once it is made.
unsafe impl<T> Send for Digest<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Digest<T> {}

impl<T> Digest<T> {
    /// Has `make(memory, its length)` put a digest of `content` into `bytes`
    /// bytes; `None` where that gives none.
    fn new(
        content: &Arc<[u8]>,
        bytes: usize,
        make: impl FnOnce(*mut c_void, usize) -> *const T,
    ) -> Option<Self> {
        let mut memory = Memory::reserve(bytes);
        let len = memory.bytes();
        let ptr = NonNull::new(make(memory.as_mut_ptr(), len).cast_mut())?;
        Some(Self { ptr, memory, _content: Arc::clone(content) })
    }
}

const BY_REF: sys::ZSTD_dictLoadMethod_e = sys::ZSTD_dictLoadMethod_e::ZSTD_dlm_byRef;
const FULL: sys::ZSTD_dictContentType_e = sys::ZSTD_dictContentType_e::ZSTD_dct_fullDict;

/// A dictionary digested for packing at one level.
pub(crate) struct PackDigest(Digest<sys::ZSTD_CDict>);

impl PackDigest {
    /// `None` when the content is not a dictionary in zstd's format.
    pub(crate) fn new(content: &Arc<[u8]>, level: i32, raw_len_typical: usize) -> Option<Self> {
        let mut parameters = Parameters::fit(level, raw_len_typical, content.len(), usize::MAX).0;
        // One cell for each byte of the dictionary is enough; zstd would take
        // tables for the values as well, which they bring themselves.
        let cells = content.len().next_power_of_two().ilog2().max(10);
        parameters.hashLog = parameters.hashLog.min(cells);
        parameters.chainLog = parameters.chainLog.min(cells);
        // SAFETY: a pure function of numbers.
        let bytes =
            unsafe { sys::ZSTD_estimateCDictSize_advanced(content.len(), parameters, BY_REF) };
        let (from, from_len) = (content.as_ptr().cast(), content.len());
        // SAFETY: the memory is aligned and `len` long; it and the content it
        // refers to live beside the digest.
        let digest = Digest::new(content, bytes, |to, len| unsafe {
            sys::ZSTD_initStaticCDict(to, len, from, from_len, BY_REF, FULL, parameters)
        });
        digest.map(Self)
    }

    fn as_ptr(&self) -> *const sys::ZSTD_CDict {
        self.0.ptr.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.memory.bytes()
    }
}

/// A dictionary digested for unpacking.
pub(crate) struct UnpackDigest(Digest<sys::ZSTD_DDict>);

impl UnpackDigest {
    /// `None` when the content is not a dictionary in zstd's format.
    pub(crate) fn new(content: &Arc<[u8]>) -> Option<Self> {
        // SAFETY: a pure function of numbers.
        let bytes = unsafe { sys::ZSTD_estimateDDictSize(content.len(), BY_REF) };
        let (from, from_len) = (content.as_ptr().cast(), content.len());
        // SAFETY: the memory is aligned and `len` long; it and the content it
        // refers to live beside the digest.
        let digest = Digest::new(content, bytes, |to, len| unsafe {
            sys::ZSTD_initStaticDDict(to, len, from, from_len, BY_REF, FULL)
        });
        digest.map(Self)
    }

    fn as_ptr(&self) -> *const sys::ZSTD_DDict {
        self.0.ptr.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.memory.bytes()
    }
}

/// Trains a dictionary of at most `bytes_max` bytes by fast COVER, searching
/// its segment length over `steps` values. Takes its working memory (about 6
/// MiB) from C and gives it back.
pub(crate) fn train(
    samples: &[u8],
    sizes: &[usize],
    bytes_max: usize,
    level: i32,
    steps: u32,
) -> Result<Vec<u8>, ZstdError> {
    assert_eq!(sizes.iter().sum::<usize>(), samples.len(), "sizes cover the samples");
    let mut parameters = sys::ZDICT_fastCover_params_t {
        k: 0,
        d: 8,
        f: 18,
        steps,
        nbThreads: 1,
        splitPoint: 0.75,
        accel: 1,
        shrinkDict: 0,
        shrinkDictMaxRegression: 0,
        zParams: sys::ZDICT_params_t { compressionLevel: level, notificationLevel: 0, dictID: 0 },
    };
    let mut dictionary = vec![0u8; bytes_max];
    // SAFETY: the dictionary buffer is `bytes_max` long; `sizes` says how the
    // samples lie, and their sum has been checked.
    let code = unsafe {
        sys::ZDICT_optimizeTrainFromBuffer_fastCover(
            dictionary.as_mut_ptr().cast(),
            bytes_max,
            samples.as_ptr().cast(),
            sizes.as_ptr(),
            sizes.len() as u32,
            &raw mut parameters,
        )
    };
    let len = check(code)?;
    dictionary.truncate(len);
    Ok(dictionary)
}
