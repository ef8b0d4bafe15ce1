#!/bin/sh
# Misuse that the compiler refuses, each with its error. usage: compile_fail.sh REPOSITORY WORK_FOLDER
set -eu
mkdir -p "$2/src"
cd "$2"
cat > Cargo.toml <<END
[package]
name = "misuse"
version = "0.0.0"
edition = "2021"
[dependencies]
distag = { path = "$1/bindings/rust/distag" }
[workspace]
END
tried=0

# usage: refused CODE_OF_THE_ERROR BODY
refused() {
  printf '#![forbid(unsafe_code)]\n#![allow(unused, clippy::all)]\nuse distag::*;\nfn main() -> Result<()> {\n%s\nOk(())\n}\n' \
    "$2" > src/main.rs
  tried=$((tried + 1))
  if output=$(/usr/bin/cargo check --offline --quiet 2>&1); then
    [ "$1" = none ] || { echo "this compiles, and must not: $2"; exit 1; }
    return 0
  fi
  case $output in
    *"error[$1]"*) ;;
    *) echo "this fails with another error than $1: $2"; echo "$output"; exit 1 ;;
  esac
}
worker='let worker = Worker::builder().build()?;'
refused none "$worker worker.register(\"f\", |call: &Call, x: Tensor| x.mul(&x))?;"
refused E0382 'let x = Tensor::copy(&[1.0f32]); drop(x); x.relu()?;'
refused E0382 "$worker drop(worker); worker.call::<()>(\"b\", \"f\", ())?;"
refused E0382 "$worker let future = worker.call_async::<i64>(\"b\", \"f\", ())?; future.wait()?; future.wait()?;"
refused E0521 "fn keep(call: &'static Call) {} $worker worker.register(\"f\", |call: &Call| { keep(call); Ok::<_, Error>(()) })?;"
refused E0277 "$worker worker.register(\"f\", |call: &Call| -> Result<()> { std::thread::scope(|s| { s.spawn(|| call.arg_count()); }); Ok(()) })?;"
refused E0277 "$worker let count = std::rc::Rc::new(1i64); worker.register(\"f\", move || Ok::<_, Error>(*count))?;"
refused E0277 "$worker worker.register(\"f\", |x: std::rc::Rc<i64>| Ok::<_, Error>(1i64))?;"
refused E0277 "$worker worker.call::<()>(\"b\", \"f\", (std::time::Instant::now(),))?;"
refused E0373 "$worker let count = 1i64; worker.register(\"f\", || Ok::<_, Error>(count))?;"
refused E0505 'let x = Tensor::copy(&[1.0f32]); let view = x.view::<f32>()?; let slice = &*view; drop(view); println!("{slice:?}");'
refused E0277 'let x = Tensor::copy(&[1u8]);'
refused E0277 'let object = Object::new(std::cell::Cell::new(1)); worker_share(object); fn worker_share(value: impl IntoValue) {}'
refused E0603 'let handle: distag::ffi::Handle<sys::distag_tensor>;'
echo "$tried programs: each compiles, or fails with its error"
