//! Gradients of gradients: three passes, seeds that lead on, a gradient penalty that trains, what is refused.
#![forbid(unsafe_code)]

use distag::ops::Sum;
use distag::{Backward, Code, Context, Optimizer, Result, Tensor};
use distag_tests::{numbers, Group, SECONDS};

const CREATE: Backward<'static> =
    Backward { create_graph: true, seeds: &[], remote_roots: &[], retain_graph: false, fast: false, timeout: None };

fn leaf(items: &[f64], shape: &[i64]) -> Result<Tensor> {
    Tensor::try_copy(items, shape)?.with_grad()
}

#[test]
fn three_passes_give_three_derivatives() -> Result<()> {
    let x = leaf(&[2.0, -1.0], &[2])?;
    let mut values = x.mul(&x)?.mul(&x)?.sum()?;
    for expected in [[12.0, 3.0], [12.0, -6.0], [6.0, 6.0]] {
        let context = Context::local()?;
        context.backward_with(&[&values], CREATE)?;
        let gradient = context.gradient(&x)?;
        assert_eq!(numbers(&gradient), expected);
        values = gradient.sum()?;
    }
    Ok(())
}

#[test]
fn seeds_lead_on_and_plain_gradients_do_not() -> Result<()> {
    let (x, seed) = (leaf(&[2.0, 3.0], &[2])?, leaf(&[5.0, 7.0], &[2])?);
    let (first, second, product) = (Context::local()?, Context::local()?, x.mul(&x)?);
    first.backward_with(&[&product], Backward { seeds: &[Some(&seed)], ..CREATE })?;
    second.backward(&[&first.gradient(&x)?.sum()?])?;
    assert_eq!(numbers(&second.gradient(&seed)?), [4.0, 6.0]);
    let plain = Context::local()?;
    plain.backward_with(&[&product], Backward { seeds: &[Some(&seed)], ..Backward::default() })?;
    let failure = plain.backward(&[&plain.gradient(&x)?.sum()?]).unwrap_err();
    assert_eq!(failure.code(), Code::InvalidArgument, "{failure}");
    Ok(())
}

/// The length of the critic's gradient by its input goes to 1.
#[test]
fn a_gradient_penalty_trains() -> Result<()> {
    let critic = leaf(&[0.3, -0.2, 0.1, 0.4, -0.5, 0.2], &[3, 2])?;
    let last = leaf(&[0.7, -0.3, 0.2], &[3])?;
    let points = leaf(&[0.5, -1.0, 1.5, 0.2], &[2, 2])?;
    let sgd = Optimizer::local("sgd", [&critic, &last])?;
    sgd.set("lr", 0.2)?;
    let mut losses = Vec::new();
    for _ in 0..60 {
        let (first, second) = (Context::local()?, Context::local()?);
        let scores = points.linear(&critic, None)?.tanh()?.matmul(&last)?;
        first.backward_with(&[&scores.sum()?], CREATE)?;
        let slopes = first.gradient(&points)?;
        let off =
            slopes.mul(&slopes)?.sum_with(Sum { dims: &[1], ..Default::default() })?.sqrt()?.add_scalar(-1.0)?;
        let penalty = off.mul(&off)?.mean()?;
        second.backward(&[&penalty])?;
        sgd.step(&second)?;
        losses.push(penalty.item()?);
    }
    assert!(losses[59] < 0.1 * losses[0], "{} {}", losses[0], losses[59]);
    Ok(())
}

#[test]
fn it_goes_through_other_workers() -> Result<()> {
    let group = Group::new(|worker| worker.register("square", |x: Tensor| x.mul(&x)));
    let (x, context) = (leaf(&[2.0], &[1])?, group.a().context()?);
    context.backward_async(&[&x.mul(&x)?.sum()?], Backward { timeout: Some(SECONDS), ..CREATE })?.wait()?;
    let gradient = context.gradient(&x)?;
    assert!(gradient.requires_grad());
    assert_eq!(numbers(&gradient), [4.0]);
    let far = group.a().context()?;
    let loss = far.call::<Tensor>("b", "square", (&x,))?.sum()?;
    far.backward_with(&[&loss], CREATE)?;
    far.backward(&[&far.gradient(&x)?.sum()?])?;
    assert_eq!(numbers(&far.gradient(&x)?.detach()?), [4.0 + 2.0]);
    Ok(())
}
