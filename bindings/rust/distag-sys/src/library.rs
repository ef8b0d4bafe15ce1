//! The library behind the functions: asked for once whether it fits, and taken at run time with the feature `load`.
use crate::raw::{DISTAG_ABI_MAJOR, SLOTS, VERSION};
use core::ffi::c_void;
use std::ffi::CStr;
use std::mem::{size_of, MaybeUninit};
use std::os::raw::{c_char, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

#[repr(C)]
struct Place {
    file: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

#[cfg_attr(feature = "load", link(name = "dl"))]
extern "C" {
    fn dladdr(address: *const c_void, place: *mut Place) -> c_int;
}

/// What a library says of itself.
struct Found {
    version: *const c_char,
    table: *const c_void,
}

/// The function table of a library that fits.
static TABLE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Refuses a library that is missing, older, or of another major version of the ABI, in one sentence with its path and
/// both versions. No function of it is called then but the two that tell its version, and these once.
///
/// With the feature `load` this is what loads the library, `libdistag.so.0` or the file that `DISTAG_LIBRARY` names;
/// any function of it does so too, and answers `DISTAG_E_UNSUPPORTED` with that sentence, NULL or 0 without it.
///
/// ```
/// assert_eq!(distag_sys::check_library(), Ok(()));
/// assert!(unsafe { distag_sys::distag_get_handle_count() } < 100);
/// ```
pub fn check_library() -> Result<(), &'static str> {
    static ANSWER: Mutex<Option<Result<(), &'static str>>> = Mutex::new(None);
    if !TABLE.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let mut answer = ANSWER.lock().unwrap_or_else(PoisonError::into_inner);
    *answer.get_or_insert_with(|| match open().and_then(|found| judge(&found)) {
        Ok(table) => {
            TABLE.store(table as *mut c_void, Ordering::Release);
            Ok(())
        }
        Err(refusal) => Err(Box::leak(refusal.into_boxed_str())),
    })
}

/// The table, unless it is too short for this crate.
fn judge(found: &Found) -> Result<*const c_void, String> {
    let needed = 2 * size_of::<u32>() + SLOTS * size_of::<usize>();
    // The table begins with its size.
    if !found.table.is_null() && unsafe { *found.table.cast::<u32>() } as usize >= needed {
        return Ok(found.table);
    }
    let (path, version) = unsafe { (path_of(found.version.cast()), text(found.version)) };
    Err(format!(
        "distag: {path} is version {version}, and this program needs version {VERSION} with ABI {DISTAG_ABI_MAJOR} or \
         a later one: install that library, or build with an older crate"
    ))
}

unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    CStr::from_ptr(text).to_string_lossy().into_owned()
}

/// The file that an address was loaded from.
unsafe fn path_of(address: *const c_void) -> String {
    let mut place = MaybeUninit::<Place>::uninit();
    match dladdr(address, place.as_mut_ptr()) {
        0 => "libdistag".to_owned(),
        _ => shortened(&text(place.assume_init().file)),
    }
}

/// The end of a long path or reason, so that an error has room for what is behind it.
fn shortened(path: &str) -> String {
    match path.char_indices().rev().nth(200) {
        Some((begin, _)) => format!("...{}", &path[begin..]),
        None => path.to_owned(),
    }
}

#[cfg(not(feature = "load"))]
fn open() -> Result<Found, String> {
    use crate::raw::{distag_get_api, distag_get_version};
    unsafe { Ok(Found { version: distag_get_version(), table: distag_get_api(DISTAG_ABI_MAJOR as u32) }) }
}

#[cfg(feature = "load")]
use loading::open;
#[cfg(feature = "load")]
pub(crate) use loading::{api, refused, slot};

#[cfg(feature = "load")]
mod loading {
    use super::*;
    use crate::raw::{distag_error, distag_status, DISTAG_E_UNSUPPORTED};
    use std::ffi::{CString, OsString};
    use std::io::Read;
    use std::os::unix::ffi::OsStrExt;
    use std::ptr::addr_of_mut;

    const NOW: c_int = 2;

    extern "C" {
        fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
        fn dlerror() -> *const c_char;
    }

    pub(super) fn open() -> Result<Found, String> {
        let named = std::env::var_os("DISTAG_LIBRARY").filter(|name| !name.is_empty());
        let path = named.clone().unwrap_or_else(|| OsString::from(format!("libdistag.so.{DISTAG_ABI_MAJOR}")));
        let file = CString::new(path.as_bytes()).unwrap_or_default();
        let (library, shown) = unsafe { (dlopen(file.as_ptr(), NOW), shortened(&path.to_string_lossy())) };
        if library.is_null() {
            let reason = other_processor(&path).unwrap_or_else(|| unsafe { shortened(&text(dlerror())) });
            let what = match named {
                Some(_) => "DISTAG_LIBRARY cannot be loaded",
                None => "libdistag is not found: install it, or name its file in DISTAG_LIBRARY",
            };
            return Err(format!("distag: {what} ({reason}); this program needs version {VERSION}"));
        }
        let symbol = |name: &[u8]| unsafe { dlsym(library, name.as_ptr().cast()) };
        let (version, api) = (symbol(b"distag_get_version\0"), symbol(b"distag_get_api\0"));
        if version.is_null() || api.is_null() {
            return Err(format!("distag: {shown} is no libdistag: name its file in DISTAG_LIBRARY"));
        }
        // These two have been what they are since 0.1.
        unsafe {
            let version: unsafe extern "C" fn() -> *const c_char = core::mem::transmute(version);
            let api: unsafe extern "C" fn(u32) -> *const c_void = core::mem::transmute(api);
            Ok(Found { version: version(), table: api(DISTAG_ABI_MAJOR as u32) })
        }
    }

    /// What the loader says of a library for another processor is "No such file", and for one of another width nothing
    /// about which.
    fn other_processor(path: &OsString) -> Option<String> {
        let head = |path: &std::path::Path| -> Option<(u8, u16)> {
            let mut bytes = [0u8; 20];
            std::fs::File::open(path).ok()?.read_exact(&mut bytes).ok()?;
            let is_elf = bytes.starts_with(b"\x7fELF");
            is_elf.then_some((bytes[4], u16::from_ne_bytes([bytes[18], bytes[19]])))
        };
        let (found, own) = (head(path.as_ref())?, head("/proc/self/exe".as_ref())?);
        let name = |(class, machine): (u8, u16)| format!("{machine} of {} bits", if class == 2 { 64 } else { 32 });
        (found != own).then(|| {
            let path = shortened(&path.to_string_lossy());
            format!("{path} is for another processor: ELF machine {}, not {}", name(found), name(own))
        })
    }

    /// A function of the table; none without a library that fits.
    pub fn slot(index: usize) -> Option<*const c_void> {
        let mut table = TABLE.load(Ordering::Acquire);
        if table.is_null() {
            check_library().ok()?;
            table = TABLE.load(Ordering::Acquire);
        }
        let first = 2 * size_of::<u32>();
        Some(unsafe { *table.cast::<u8>().add(first).cast::<*const c_void>().add(index) })
    }

    pub fn api(abi_major: u32) -> *const c_void {
        let fits = abi_major == DISTAG_ABI_MAJOR as u32 && check_library().is_ok();
        if fits {
            TABLE.load(Ordering::Acquire)
        } else {
            core::ptr::null_mut()
        }
    }

    /// The answer of a function without a library.
    pub unsafe fn refused(err: *mut distag_error) -> distag_status {
        if let (false, Err(refusal)) = (err.is_null(), check_library()) {
            addr_of_mut!((*err).code).write(DISTAG_E_UNSUPPORTED);
            addr_of_mut!((*err).origin_rank).write(-1);
            addr_of_mut!((*err).flags).write(0);
            let (message, most) = (addr_of_mut!((*err).message), size_of::<distag_error>() - 17);
            let mut length = refusal.len().min(most);
            while !refusal.is_char_boundary(length) {
                length -= 1;
            }
            core::ptr::copy_nonoverlapping(refusal.as_ptr(), message.cast::<u8>(), length);
            message.cast::<u8>().add(length).write(0);
        }
        DISTAG_E_UNSUPPORTED
    }
}
