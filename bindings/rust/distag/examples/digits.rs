//! Trains a classifier of hand-written digits whose layers live in three processes.
//!
//!     distag run -n 3 target/debug/examples/digits DIGITS.CSV [EPOCHS]
//!
//! Rank 0, "trainer", has the data, a convolution and the loss; "middle" and "last" have a layer each, and may as well be
//! programs in C (samples/04_digits.c).
#![forbid(unsafe_code)]

use distag::{ops, DType, Error, IntoValue, Optimizer, Result, Tensor, Value, Worker};
use std::time::{Duration, Instant};

const NAMES: [&str; 3] = ["trainer", "middle", "last"];
const SHAPES: [&[i64]; 3] = [&[16, 1, 3, 3], &[64, 256], &[10, 64]];
const FAN_IN: [f64; 3] = [9.0, 256.0, 64.0];
const BATCH: usize = 32;
const RATE: f64 = 0.2; // of the first epoch; falls to 0 in a straight line
const MINUTE: Duration = Duration::from_secs(60);

/// 16 filters of 3 x 3; 256 to 64; 64 to 10.
#[derive(Clone)]
struct Layer {
    index: usize,
    weight: Tensor,
    bias: Tensor,
}

impl Layer {
    /// Normal numbers, scaled by the fan-in (He et al. 2015).
    fn new(index: usize) -> Result<Self> {
        let random = ops::randn(100 + index as i64, SHAPES[index])?;
        let weight = random.mul_scalar((2.0 / FAN_IN[index]).sqrt())?.with_grad()?;
        Ok(Self { index, weight, bias: ops::zeros(&SHAPES[index][..1])?.with_grad()? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.index == 0 {
            let images = x.reshape(&[-1, 1, 8, 8])?;
            let options = ops::Conv2d { padding: &[1, 1], ..Default::default() };
            let filtered = images.conv2d_with(&self.weight, Some(&self.bias), options)?;
            return filtered.relu()?.max_pool2d(&[2, 2])?.reshape(&[-1, 256]);
        }
        let y = x.linear(&self.weight, Some(&self.bias))?;
        if self.index == 2 {
            return Ok(y);
        }
        y.relu()
    }

    fn parameters(&self) -> Vec<Tensor> {
        vec![self.weight.clone(), self.bias.clone()]
    }
}

/// Rows of pixels with their classes.
#[derive(Default)]
struct Images(Vec<(Vec<f32>, i64)>);

impl Images {
    /// The same order on every run: a linear congruential generator (Knuth, MMIX).
    fn shuffle(&mut self, mut seed: u64) {
        for i in (1..self.0.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.0.swap(i, (seed >> 33) as usize % (i + 1));
        }
    }

    fn batch(&self, begin: usize, end: usize) -> Result<(Tensor, Tensor)> {
        let rows = &self.0[begin..end.min(self.0.len())];
        let pixels = rows.iter().flat_map(|(pixels, _)| pixels.iter().copied()).collect::<Vec<_>>();
        let classes = rows.iter().map(|&(_, class)| class).collect::<Vec<_>>();
        Ok((Tensor::from_vec(pixels, &[rows.len() as i64, 64])?, Tensor::copy(&classes)))
    }
}

/// Those to train with, and every fifth line, which is held out.
fn read_images(path: &str) -> Result<(Images, Images), Box<dyn std::error::Error>> {
    let (mut train, mut held_out) = (Images::default(), Images::default());
    for (number, line) in std::fs::read_to_string(path)?.lines().enumerate() {
        let numbers = line.split(',').map(str::parse::<i64>).collect::<Result<Vec<_>, _>>()?;
        let (&class, pixels) = numbers.split_last().ok_or("an empty line")?;
        let set = if number % 5 == 4 { &mut held_out } else { &mut train };
        set.0.push((pixels.iter().map(|&pixel| pixel as f32 / 16.0).collect(), class));
    }
    Ok((train, held_out))
}

/// The steps of rank 0.
struct Trainer {
    worker: Worker,
    layer: Layer,
    sgd: Optimizer,
    steps: usize,
}

impl Trainer {
    fn new(worker: Worker, layer: Layer) -> Result<Self> {
        let mut parameters: Vec<Value> = Vec::new();
        for each in layer.parameters() {
            parameters.push(each.into_value()?);
        }
        for name in &NAMES[1..] {
            parameters.push(worker.remote(name, "parameters", ())?.into_value()?);
        }
        let sgd = Optimizer::new(&worker, "sgd", parameters)?;
        Ok(Self { worker, layer, sgd, steps: 0 })
    }

    /// One batch: forward through all three processes, backward, step. Gives the loss.
    fn step(&mut self, x: &Tensor, targets: &Tensor) -> Result<f64> {
        let context = self.worker.context()?;
        let middle: Tensor = context.call("middle", "forward", (self.layer.forward(x)?,))?;
        let logits: Tensor = context.call("last", "forward", (middle,))?;
        let loss = logits.cross_entropy(targets)?;
        context.backward(&[&loss])?;
        self.sgd.step(&context)?;
        self.steps += 1;
        loss.item()
    }

    fn epoch(&mut self, images: &Images) -> Result<f64> {
        let (mut sum, mut count) = (0.0, 0);
        for begin in (0..images.0.len()).step_by(BATCH) {
            let (x, targets) = images.batch(begin, begin + BATCH)?;
            sum += self.step(&x, &targets)?;
            count += 1;
        }
        Ok(sum / f64::from(count))
    }

    /// Without a context nothing is recorded.
    fn accuracy(&self, images: &Images) -> Result<f64> {
        let (x, targets) = images.batch(0, images.0.len())?;
        let middle: Tensor = self.worker.call("middle", "forward", (self.layer.forward(&x)?,))?;
        let logits: Tensor = self.worker.call("last", "forward", (middle,))?;
        let hits = logits.argmax_with(ops::Argmax { dim: 1 })?.eq_elements(&targets)?;
        hits.cast(DType::Float32)?.mean()?.item()
    }
}

fn train(mut trainer: Trainer, path: &str, epochs: usize) -> Result<(), Box<dyn std::error::Error>> {
    let (mut images, held_out) = read_images(path)?;
    let (mut seconds, mut accuracy) = (0.0, 0.0);
    for epoch in 1..=epochs {
        images.shuffle(epoch as u64);
        trainer.sgd.set("lr", RATE * (epochs - epoch + 1) as f64 / epochs as f64)?;
        let begin = Instant::now();
        let loss = trainer.epoch(&images)?;
        seconds += begin.elapsed().as_secs_f64();
        accuracy = trainer.accuracy(&held_out)?;
        println!("epoch {epoch:2} of {epochs}   loss {loss:.4}   held-out accuracy {accuracy:.4}");
    }
    let (count, steps) = (held_out.0.len(), trainer.steps);
    println!("held-out accuracy {accuracy:.4} on {count} images, after {steps} steps over {} processes", NAMES.len());
    println!("{:.0} steps per second", steps as f64 / seconds);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = std::env::args().collect::<Vec<_>>();
    let path = arguments.get(1).ok_or("usage: digits DIGITS.CSV [EPOCHS]")?;
    let epochs = arguments.get(2).map_or(Ok(30), |text| text.parse())?;
    let rank = std::env::var("RANK").map_err(|_| "start it by: distag run -n 3 digits")?.parse::<usize>()?;
    let name = NAMES.get(rank).ok_or("there are three ranks")?;

    let layer = Layer::new(rank)?;
    let worker = Worker::builder().name(*name).build()?;
    let own = layer.clone();
    worker.register("forward", move |x: Tensor| own.forward(&x))?;
    let own = layer.clone();
    worker.register("parameters", move || Ok::<_, Error>(own.parameters()))?;
    worker.start(MINUTE)?;
    if rank == 0 {
        train(Trainer::new(worker.clone(), layer)?, path, epochs)?;
    }
    worker.shutdown(None)?;
    Ok(())
}
