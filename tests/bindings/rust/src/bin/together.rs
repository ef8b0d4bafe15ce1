//! A member of the group in Rust: see tests/bindings/together/README.md.
//! usage: together RANK SIZE RENDEZVOUS DIGITS FIRST STEPS
#![forbid(unsafe_code)]

use distag::{ops, Bytes, Call, FromValue, IntoValue, Optimizer, Result, Tensor, Value, Worker};
use std::io::{BufRead, Read};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const BATCH: usize = 32;
const LINES: usize = 1600;
const LONG: Duration = Duration::from_secs(120);

/// CRC-32 of all bytes of some tensors, as zlib has it.
fn crc(tensors: &[&Tensor]) -> Result<u32> {
    let mut crc = !0u32;
    for tensor in tensors {
        for byte in tensor.view::<f32>()?.iter().flat_map(|each| each.to_le_bytes()) {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
            }
        }
    }
    Ok(!crc)
}

fn read_digits(path: &str) -> Vec<Vec<i64>> {
    let text = std::fs::read_to_string(path).expect("the digits");
    text.lines().map(|line| line.split(',').map(|each| each.parse().expect("a number")).collect()).collect()
}

fn train_step(worker: &Worker, lines: &[Vec<i64>], turn: i32, number: usize) -> Result<()> {
    let pixels = lines.iter().flat_map(|line| line[..64].iter().map(|&pixel| pixel as f32 / 16.0));
    let mut x = Tensor::from_vec(pixels.collect(), &[lines.len() as i64, 64])?;
    let classes = lines.iter().map(|line| line[64]).collect::<Vec<_>>();
    let context = worker.context()?;
    for rank in 0..worker.world_size() {
        x = context.call(&format!("layer{rank}"), "forward", (&x,))?;
    }
    let loss = x.cross_entropy(&Tensor::copy(&classes))?;
    context.backward(&[&loss])?;
    let mut line = format!("{turn} {number} {:08x}", loss.view::<f32>()?[0].to_bits());
    for rank in 0..worker.world_size() {
        line.push(' ');
        line += &context.call::<u32>(&format!("layer{rank}"), "step", ())?.to_string();
    }
    println!("{line}"); // which flushes it
    Ok(())
}

/// What is sent there and back.
struct Parcel {
    numbers: Vec<i64>,
    name: String,
    text: String,
    bytes: Bytes,
    tensor: Tensor,
}

impl Parcel {
    fn new(rank: i64, number: i64) -> Result<Self> {
        Ok(Self {
            numbers: vec![rank, number, 9_007_199_254_740_993],
            name: format!("layer{rank}"),
            text: format!("Grüße aus Schicht {rank}, Nr. {number}: äöüß €"),
            bytes: Bytes((0..1 << 20).map(|i| (i + 31 * rank + number) as u8).collect()),
            tensor: ops::randn(1000 + 100 * rank + number, &[8, 8])?,
        })
    }

    fn is(&self, other: &Self) -> Result<bool> {
        let tensors = self.tensor.shape() == other.tensor.shape()
            && *self.tensor.view::<f32>()? == *other.tensor.view::<f32>()?;
        let texts = (&self.name, &self.text) == (&other.name, &other.text);
        Ok(tensors && texts && (&self.numbers, &self.bytes) == (&other.numbers, &other.bytes))
    }
}

impl IntoValue for Parcel {
    fn into_value(self) -> Result<Value> {
        let map = Value::map([("from", self.name.into_value()?), ("number", self.numbers[1].into_value()?)])?;
        let numbers = self.numbers.into_value()?;
        Value::list([numbers, map, self.text.into_value()?, self.bytes.into_value()?, self.tensor.into_value()?])
    }
}

impl FromValue for Parcel {
    fn from_value(value: &Value) -> Result<Self> {
        let [numbers, map, text, bytes, tensor] = value.to::<[Value; 5]>()?;
        let entry = |key| map.entry(key).ok_or_else(|| distag::Error::user(1000, "an entry is missing"));
        let numbers = numbers.to::<Vec<i64>>()?;
        assert_eq!(entry("number")?.to::<i64>()?, numbers[1]);
        Ok(Self { numbers, name: entry("from")?.to()?, text: text.to()?, bytes: bytes.to()?, tensor: tensor.to()? })
    }
}

fn exchange(worker: &Worker, rank: i64, size: i64, count: i64) -> Result<()> {
    let others = (0..count * size).filter(|number| number % size != rank);
    let call = |number: i64| {
        worker.call_async::<Parcel>(&format!("layer{}", number % size), "echo", (Parcel::new(rank, number)?,))
    };
    let calls = others.map(call).collect::<Result<Vec<_>>>()?;
    let mut unchanged = 0;
    for answer in distag::wait_all(calls)? {
        unchanged += usize::from(answer.is(&Parcel::new(rank, answer.numbers[1])?)?);
    }
    println!("exchanged {unchanged}");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("the end of the input");
    Ok(())
}

fn run(arguments: &[String], worker: &Worker) -> Result<()> {
    let number = |index: usize| arguments[index].parse::<i32>().expect("a number");
    let (rank, size, first, steps) = (number(1), number(2), number(5), number(6) as usize);
    let data = read_digits(&arguments[4]);
    let (rows, columns) = (if rank == size - 1 { 10 } else { 32 }, if rank == 0 { 64 } else { 32 });
    let weight = (&ops::randn(100 + i64::from(rank), &[rows, columns])? * 0.2).with_grad()?;
    let bias = ops::zeros(&[rows])?.with_grad()?;
    let sgd = Optimizer::new(worker, "sgd", [&weight, &bias])?;
    sgd.set("lr", 0.1)?.set("momentum", 0.9)?;
    let layer = Arc::new((weight, bias, Mutex::new(sgd)));

    let used = Arc::clone(&layer);
    worker.register("forward", move |x: Tensor| {
        let y = x.linear(&used.0, Some(&used.1))?;
        if rank == size - 1 {
            return Ok(y);
        }
        y.relu()
    })?;
    worker.register("step", move |call: &Call| {
        let context = call.context().ok_or_else(|| distag::Error::user(1000, "no context"))?;
        layer.2.lock().expect("no step panics").step(&context)?;
        let (of_weight, of_bias) = (context.gradient(&layer.0)?, context.gradient(&layer.1)?);
        crc(&[&layer.0, &of_weight, &layer.1, &of_bias])
    })?;
    worker.register("echo", Ok::<Value, distag::Error>)?;
    worker.start(LONG)?;
    if first < 0 {
        exchange(worker, rank.into(), size.into(), steps as i64)?;
    }
    for turn in 0..if first < 0 { 0 } else { size } {
        if (first + turn) % size == rank {
            for number in 0..steps {
                let begin = BATCH * (steps * turn as usize + number) % LINES;
                train_step(worker, &data[begin..begin + BATCH], turn, number)?;
            }
        }
        worker.all_gather::<()>((), LONG)?;
    }
    worker.shutdown(LONG).map(|_| ())
}

fn main() {
    let arguments = std::env::args().collect::<Vec<_>>();
    let builder = Worker::builder().name(format!("layer{}", arguments[1])).rendezvous(&arguments[3]);
    let builder =
        builder.rank(arguments[1].parse().expect("a rank")).world_size(arguments[2].parse().expect("a size"));
    let worker = builder.build().expect("a worker");
    if let Err(failure) = run(&arguments, &worker) {
        println!("failed {} {failure}", failure.code().to_raw());
        let data = read_digits(&arguments[4]);
        for line in std::io::stdin().lock().lines() {
            for number in 0..line.expect("a line").parse().expect("a number") {
                let begin = BATCH * number;
                train_step(&worker, &data[begin..begin + BATCH], 0, number).expect("a step");
            }
        }
        drop(worker);
        std::process::exit(3);
    }
}
