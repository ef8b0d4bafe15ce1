//! Cases within one process, without a worker.
use crate::{lines, Case};
use distag::{ops, Attribute, Backward, Context, CustomOp, DType, Optimizer, Result, Tensor};
use distag_tests::json::Json;
use distag_tests::{described, fails, near, near_all, numbers, tensor_of};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

include!(env!("DISTAG_OP_CALLS"));

fn input(inputs: &[Option<Tensor>], index: usize) -> &Tensor {
    inputs.get(index).and_then(Option::as_ref).expect("an input")
}

fn every_dtype(given: &Json) {
    for each in given.get("tensors").list() {
        let (shape, dtype) = (each.ints("shape"), each.dtype("dtype"));
        let data = each.get("data");
        let made = match dtype {
            DType::Int64 => {
                let made = Tensor::try_copy(&data.as_ints(), &shape).unwrap();
                assert_eq!(made.to_vec::<i64>().unwrap(), data.as_ints());
                made
            }
            DType::Bool => {
                let flags = data.list().iter().map(|flag| *flag == Json::Bool(true)).collect::<Vec<_>>();
                let made = Tensor::try_copy(&flags, &shape).unwrap();
                assert_eq!(made.to_vec::<bool>().unwrap(), flags);
                assert_eq!(*made.view::<bool>().unwrap(), flags);
                made
            }
            DType::Float64 => {
                let made = Tensor::from_vec(data.flat(), &shape).unwrap();
                assert_eq!(*made.view::<f64>().unwrap(), data.flat());
                made
            }
            _ => {
                let items = data.flat().iter().map(|&number| number as f32).collect::<Vec<_>>();
                let made = Tensor::borrowed(Arc::from(items.as_slice()), &shape).unwrap();
                assert_eq!(*made.view::<f32>().unwrap(), items);
                made
            }
        };
        assert_eq!((made.dtype(), made.shape()), (dtype, shape));
    }
    assert!(Tensor::copy(&[1.0f32]).view::<f64>().unwrap_err().to_string().contains("Float32"));
}

fn shapes(given: &Json) {
    let empty = ops::zeros(&given.ints("empty_shape")).unwrap();
    assert_eq!((empty.shape(), empty.count()), (given.ints("empty_shape"), 0));
    assert!(empty.view::<f32>().unwrap().is_empty());
    let scalar = Tensor::try_copy(&[given.float("scalar")], &[]).unwrap();
    assert_eq!((scalar.item().unwrap(), scalar.ndim()), (given.float("scalar"), 0));
    let matrix = tensor_of(given.get("matrix"), DType::Float32);
    let transposed = matrix.transpose(0, 1).unwrap();
    near(&transposed, given.get("transposed"), 0.0, 0.0);
    let view = transposed.view::<f32>().unwrap(); // strided, so it is copied
    near_all(
        &view.iter().map(|&each| f64::from(each)).collect::<Vec<_>>(),
        &given.get("transposed").flat(),
        0.0,
        0.0,
    );
    let options = ops::Slice { dim: 1, step: 2, ..Default::default() };
    near(&matrix.slice_with(options).unwrap(), given.get("every_second_column"), 0.0, 0.0);
}

/// One line of the reference numbers: by the name of the op, forward and backward.
fn check_op(given: &Json, line: &Json) {
    let wanted = if line.has("grad_inputs") { line.get("grad_inputs").list() } else { &[] };
    let inputs = line.get("inputs").list().iter().map(described).collect::<Vec<_>>();
    let mut with_grad = Vec::new();
    for (each, expected) in inputs.iter().zip(wanted) {
        if let (Some(each), true) = (each, *expected != Json::Null) {
            if each.dtype() == DType::Float64 {
                each.set_requires_grad(true).unwrap();
                with_grad.push((each, expected));
            }
        }
    }
    let attributes = match line.get("attributes") {
        Json::Map(entries) => entries.clone(),
        other => panic!("{other:?}"),
    };
    let lists = attributes.iter().map(|(key, each)| (key, ints_of(each))).collect::<Vec<_>>();
    let passed = attributes.iter().zip(&lists).filter(|((_, each), _)| **each != Json::Null);
    let passed = passed.map(|((key, each), (_, ints))| (key.as_str(), attribute(each, ints))).collect::<Vec<_>>();
    let (absolute, relative) = (given.float("absolute"), given.float("relative"));
    let expected = line.get("outputs").list();
    let given_inputs = inputs.iter().map(Option::as_ref).collect::<Vec<_>>();
    let outputs = distag::apply(&line.text("op"), &given_inputs, &passed, expected.len()).unwrap();
    for (output, expected) in outputs.iter().zip(expected) {
        assert_eq!(output.shape(), expected.ints("shape"));
        near(output, expected.get("data"), absolute, relative);
    }
    if with_grad.is_empty() {
        return;
    }
    let context = Context::local().unwrap();
    let seeds = line.get("grad_outputs").list().iter().map(described).collect::<Vec<_>>();
    let seeds = seeds.iter().map(Option::as_ref).collect::<Vec<_>>();
    let roots = outputs.iter().collect::<Vec<_>>();
    context.backward_with(&roots, Backward { seeds: &seeds, ..Backward::default() }).unwrap();
    let gradients = context.gradients().unwrap();
    for (leaf, expected) in with_grad {
        near(&gradients.get(leaf).unwrap(), expected.get("data"), absolute, relative);
    }
}

fn ints_of(given: &Json) -> Vec<i64> {
    if matches!(given, Json::List(_)) {
        return given.as_ints();
    }
    Vec::new()
}

fn attribute<'a>(given: &'a Json, ints: &'a [i64]) -> Attribute<'a> {
    match given {
        Json::Bool(flag) => Attribute::Bool(*flag),
        Json::Int(number) => Attribute::Int(*number),
        Json::Float(number) => Attribute::Float(*number),
        Json::Text(text) => Attribute::Text(text),
        _ => Attribute::Ints(ints),
    }
}

/// The function of the crate gives the same as the op by its name.
fn check_function(given: &Json, line: &Json) {
    let inputs = line.get("inputs").list().iter().map(described).collect::<Vec<_>>();
    let outputs = call_op(&line.text("op"), &inputs, line.get("attributes")).unwrap();
    for (output, expected) in outputs.iter().zip(line.get("outputs").list()) {
        near(output, expected.get("data"), given.float("absolute"), given.float("relative"));
    }
}

fn every_op(given: &Json) {
    let absent = given.get("not_in_the_library").list().iter().map(Json::as_str).collect::<HashSet<_>>();
    let mut seen = HashSet::new();
    for line in lines(given) {
        if !absent.contains(line.text("op").as_str()) {
            check_op(given, &line);
            check_function(given, &line);
            seen.insert(line.text("op"));
        }
    }
    for line in given.get("others").list() {
        let inputs = line.get("inputs").list().iter().map(|each| Some(tensor_of(each, DType::Float32)));
        let found = call_op(&line.text("op"), &inputs.collect::<Vec<_>>(), line.get("attributes")).unwrap();
        near(&found[0], &line.get("outputs").list()[0], 0.0, 0.0);
        seen.insert(line.text("op"));
    }
    for &name in ops::NAMES {
        assert!(seen.contains(name), "not tried: {name}");
    }
}

fn floats(given: &Json) -> Vec<f32> {
    given.flat().iter().map(|&each| each as f32).collect()
}

fn write_in_place(given: &Json) {
    let x = tensor_of(given.get("before"), DType::Float32);
    let tail = x.slice_with(ops::Slice { start: 1, ..Default::default() }).unwrap();
    x.write(&floats(given.get("written"))).unwrap();
    assert_eq!(*tail.view::<f32>().unwrap(), [5.0, 6.0]);
    x.assign(&Tensor::try_copy(&[given.float("assigned")], &[]).unwrap()).unwrap();
    near(&x, given.get("expected_assigned"), 0.0, 0.0);
    x.add_scaled(&tensor_of(given.get("added"), DType::Float32), given.float("scale")).unwrap();
    near(&x, given.get("expected_added"), 0.0, 0.0);
}

fn read_copies(given: &Json) {
    let x = tensor_of(given.get("before"), DType::Float32);
    let (copy, snapshot, items) = (x.clone_data().unwrap(), x.snapshot().unwrap(), x.to_vec::<f32>().unwrap());
    let view = x.view::<f32>().unwrap();
    let memory = view.as_ptr();
    x.write(&floats(given.get("written"))).unwrap();
    near(&copy, given.get("before"), 0.0, 0.0);
    near(&snapshot, given.get("before"), 0.0, 0.0);
    assert_eq!(items, floats(given.get("before")));
    assert_eq!(*view, floats(given.get("before")));
    assert_eq!(view.as_ptr(), memory);
    near(&x, given.get("written"), 0.0, 0.0);
}

fn view_outlives(given: &Json) {
    let x = tensor_of(given.get("data"), DType::Float32);
    let view = x.view::<f32>().unwrap();
    assert_eq!(view.as_ptr(), x.view::<f32>().unwrap().as_ptr(), "a view copied");
    x.write(&[0.0f32; 3]).unwrap();
    drop(x);
    let moved = view;
    assert_eq!(*moved, floats(given.get("data")));
}

fn wrong_shape(given: &Json) {
    let (left, right) = (ops::zeros(&given.ints("left")).unwrap(), ops::zeros(&given.ints("right")).unwrap());
    let failure = fails(given, left.matmul(&right));
    assert_eq!(failure.class(), distag::Class::Usage);
}

fn two_layers(given: &Json) {
    let [x, w1, b1, w2] = ["x", "w1", "b1", "w2"].map(|name| tensor_of(given.get(name), DType::Float64));
    for each in [&w1, &b1, &w2] {
        each.set_requires_grad(true).unwrap();
    }
    let hidden = x.linear(&w1, Some(&b1)).unwrap().tanh().unwrap();
    let targets = tensor_of(given.get("targets"), DType::Int64);
    let loss = hidden.linear(&w2, None).unwrap().cross_entropy(&targets).unwrap();
    near_all(&[loss.item().unwrap()], &[given.float("loss")], given.float("tolerance"), 0.0);
    let context = Context::local().unwrap();
    context.backward(&[&loss]).unwrap();
    for (name, each) in [("w1", w1), ("b1", b1), ("w2", w2)] {
        near(&context.gradient(&each).unwrap(), given.get("gradients").get(name), given.float("tolerance"), 0.0);
    }
}

struct Scale(f64);

impl CustomOp for Scale {
    fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        Ok(vec![inputs[0].mul_scalar(self.0)?])
    }
    fn backward(&self, gradients: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![gradients[0].as_ref().map(|each| each.mul_scalar(self.0)).transpose()?])
    }
}

fn custom_op(given: &Json) {
    let x = tensor_of(given.get("x"), DType::Float32).with_grad().unwrap();
    let y = distag::apply_custom("scale", Scale(given.float("scale")), &[&x], 1).unwrap().remove(0);
    near(&y, given.get("y"), 0.0, 0.0);
    let context = Context::local().unwrap();
    context.backward(&[&y.sum().unwrap()]).unwrap();
    near(&context.gradient(&x).unwrap(), given.get("gradient"), 0.0, 0.0);
}

fn hook(given: &Json) {
    let x = tensor_of(given.get("x"), DType::Float32).with_grad().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (kept, scale) = (Arc::clone(&seen), given.float("given_scale"));
    let id = x.add_hook(move |gradient| {
        kept.lock().unwrap().extend(numbers(gradient));
        gradient.mul_scalar(scale).map(Some)
    });
    let loss = (&x * 2.0).sum().unwrap();
    let context = Context::local().unwrap();
    context.backward(&[&loss]).unwrap();
    near(&context.gradient(&x).unwrap(), given.get("gradient"), 0.0, 0.0);
    near_all(&seen.lock().unwrap(), &given.get("seen").flat(), 0.0, 0.0);
    x.remove_hook(id.unwrap()).unwrap();
    drop((loss, context, x));
    assert_eq!(Arc::strong_count(&seen), 1, "the closure is dropped with the graph");
}

/// PyTorch's list of two betas is two settings here.
fn settings(name: &str, given: &Json) -> Vec<(String, f64)> {
    let numbers = given.flat();
    if name == "betas" {
        return vec![("beta1".to_owned(), numbers[0]), ("beta2".to_owned(), numbers[1])];
    }
    vec![(name.to_owned(), numbers[0])]
}

fn optimizers(given: &Json) {
    let mut seen = HashSet::new();
    for line in lines(given) {
        let kind = line.text("optimizer");
        let parameter = described(line.get("initial")).unwrap().with_grad().unwrap();
        let optimizer = Optimizer::local(&kind, [&parameter]).unwrap();
        if let Json::Map(entries) = line.get("settings") {
            for (name, value) in entries.iter().flat_map(|(name, each)| settings(name, each)) {
                optimizer.set(&name, value).unwrap();
            }
        }
        let step = &line.get("steps").list()[0];
        let seed = described(step.get("gradient")).unwrap();
        let context = Context::local().unwrap();
        let seeds = Backward { seeds: &[Some(&seed)], ..Backward::default() };
        context.backward_with(&[&parameter.mul_scalar(1.0).unwrap()], seeds).unwrap();
        optimizer.step(&context).unwrap();
        let expected = step.get("parameter").get("data");
        near(&parameter, expected, given.float("absolute"), given.float("relative"));
        seen.insert(kind);
    }
    assert_eq!(seen.len(), 8, "kinds of optimizers");
}

pub fn cases() -> Vec<Case> {
    vec![
        ("tensor: every dtype, made and read", every_dtype),
        ("tensor: without elements, without dims, with strides", shapes),
        ("tensor: every op once with reference numbers", every_op),
        ("tensor: write and assign in place", write_in_place),
        ("tensor: a read copy or snapshot is not changed by a write", read_copies),
        ("tensor: a view of its memory outlives it", view_outlives),
        ("tensor: a wrong shape is an error that names it", wrong_shape),
        ("local: backward through two layers", two_layers),
        ("local: a custom op", custom_op),
        ("local: a hook sees the gradient and gives another", hook),
        ("local: an optimizer of each kind, one step", optimizers),
    ]
}
