//! Finds libdistag: in the folder that DISTAG_LIB_DIR names, else by pkg-config. With the feature `load` there is nothing to find.
use std::env;
use std::process::{exit, Command};

/// What libdistag.a needs: as cmake/library.cmake has it.
const LIBRARIES: [&str; 7] = ["zmq", "sodium", "isal", "fmt", "stdc++", "m", "pthread"];

fn fail(message: &str) -> ! {
    eprintln!("distag-sys: {message}");
    exit(1)
}

/// What pkg-config says of distag. No rpath comes out of it: the loader finds an installed library.
fn ask(arguments: &[&str]) -> String {
    let command = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
    let version = env!("CARGO_PKG_VERSION");
    let advice = "install libdistag-dev, or set DISTAG_LIB_DIR to the folder of libdistag.so";
    match Command::new(&command).args(arguments).arg(format!("distag >= {version}")).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => fail(&format!("{}\n{advice}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(failure) => fail(&format!("{command} does not run ({failure}): {advice}")),
    }
}

fn main() {
    for name in ["DISTAG_LIB_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let is_static = env::var_os("CARGO_FEATURE_STATIC").is_some();
    if env::var_os("CARGO_FEATURE_LOAD").is_some() {
        if is_static {
            fail("the features static and load exclude each other: take one of them");
        }
        return;
    }
    let kind = if is_static { "static" } else { "dylib" };
    if let Ok(folder) = env::var("DISTAG_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-lib={kind}=distag");
        for library in LIBRARIES.iter().filter(|_| is_static) {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
        return;
    }
    let arguments: &[&str] = if is_static { &["--libs", "--static"] } else { &["--libs"] };
    for word in ask(arguments).split_whitespace() {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if word == "-ldistag" {
            println!("cargo:rustc-link-lib={kind}=distag");
        } else if let Some(library) = word.strip_prefix("-l") {
            println!("cargo:rustc-link-lib=dylib={library}");
        }
    }
}
