//! What a program with the feature `load` does with a library that does not fit, or that is newer.
//! usage: loaded refused PART... | loaded taken VERSION
use distag::{sys, Code, Context, Error, Tensor, Worker};
use std::ptr::{null, null_mut};

/// The answers of whatever may be first.
fn asked() -> Vec<Error> {
    vec![
        Worker::builder().build().unwrap_err(),
        Context::local().unwrap_err(),
        Tensor::try_copy(&[1.0f32], &[1]).unwrap_err(),
        distag::ops::zeros(&[2]).unwrap_err(),
        distag::create_keys().unwrap_err(),
        distag::Value::null().unwrap_err(),
        distag::handle_report().unwrap_err(),
    ]
}

fn raw() {
    static DESTROYED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    unsafe extern "C" fn destroy(_: *mut core::ffi::c_void) {
        DESTROYED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    let destroyed = || DESTROYED.swap(0, std::sync::atomic::Ordering::Relaxed);
    let (mut value, mut err) = (null_mut(), sys::distag_error::new());
    let name = "mine\0".as_ptr().cast();
    let status = unsafe { sys::distag_value_create_object(name, null_mut(), Some(destroy), &mut value, &mut err) };
    assert_eq!((status, err.code, err.origin_rank), (20, 20, -1));
    assert!(value.is_null() && destroyed() == 1);
    let text = err.message.iter().take_while(|&&each| each != 0).map(|&each| each as u8).collect::<Vec<_>>();
    assert_eq!(std::str::from_utf8(&text), Ok(sys::check_library().unwrap_err()));

    // Also what a struct has to destroy, unless its size says that another version made it.
    let mut op = sys::distag_custom_op { destroy: Some(destroy), ..sys::distag_custom_op::new() };
    let deferred = sys::distag_deferred_options { destroy: Some(destroy), ..sys::distag_deferred_options::new() };
    let allocator = sys::distag_allocator { destroy: Some(destroy), ..sys::distag_allocator::new() };
    let mut options = sys::distag_worker_options { destroy: Some(destroy), ..sys::distag_worker_options::new() };
    unsafe {
        assert_eq!(sys::distag_apply_custom(&op, null(), 0, null_mut(), 0, &mut err), 20);
        assert_eq!(destroyed(), 1);
        op.struct_size = 0;
        assert_eq!(sys::distag_apply_custom(&op, null(), 0, null_mut(), 0, null_mut()), 20);
        assert_eq!(sys::distag_apply_custom(null(), null(), 0, null_mut(), 0, null_mut()), 20);
        assert_eq!(destroyed(), 0);
        sys::distag_tensor_create_deferred(1, null(), 0, &deferred, null_mut(), &mut err);
        assert_eq!(destroyed(), 1);
        sys::distag_worker_create(&options, null_mut(), &mut err);
        assert_eq!(destroyed(), 1);
        options.allocator = &allocator;
        sys::distag_worker_create(&options, null_mut(), &mut err);
        assert_eq!(destroyed(), 2);
        sys::distag_tensor_release(null_mut());
        assert!(sys::distag_get_api(0).is_null() && sys::distag_get_version().is_null());
    }
    assert_eq!((distag::version(), distag::handle_count()), ("", 0));
}

fn main() {
    let words = std::env::args().skip(1).collect::<Vec<_>>();
    if words[0] == "taken" {
        assert_eq!(sys::check_library(), Ok(()));
        assert!(!unsafe { sys::distag_get_api(0) }.is_null() && unsafe { sys::distag_get_api(1) }.is_null());
        return;
    }
    let threads = (0..4).map(|_| std::thread::spawn(|| (0..1000).flat_map(|_| asked()).collect::<Vec<_>>()));
    let found = threads.collect::<Vec<_>>().into_iter().flat_map(|each| each.join().unwrap()).collect::<Vec<_>>();
    for failure in &found {
        assert_eq!((failure.code(), failure.to_string()), (Code::Unsupported, found[0].to_string()));
    }
    let said = found[0].to_string();
    assert!(words[1..].iter().all(|part| said.contains(part.as_str())), "{said}");
    assert!(!said.contains('\n') && said.len() < 496, "{said}");
    raw();
    println!("{said}");
}
