package unit

import (
	"testing"

	"distag"
)

// leaf makes a float64 tensor that requires a gradient.
func leaf(data []float64, shape ...int64) *distag.Tensor {
	return must(distag.Parameter(distag.From(data, shape...)))
}

func is64(t *testing.T, found *distag.Tensor, expected ...float64) {
	t.Helper()
	data := must(distag.Data[float64](found))
	same(t, len(data), len(expected))
	for i := range data {
		same(t, data[i], expected[i])
	}
}

func TestThreeDerivatives(t *testing.T) {
	x := leaf([]float64{2, -1})
	values := must(must(must(x.Mul(x)).Mul(x)).Sum())
	for _, expected := range [][]float64{{12, 3}, {12, -6}, {6, 6}} {
		c := must(distag.NewContext(background))
		ok(t, c.BackwardWith(distag.BackwardOptions{CreateGraph: true}, values))
		gradient := must(c.Gradient(x))
		is64(t, gradient, expected...)
		values = must(gradient.Sum())
		ok(t, c.Close())
	}
	x, values = nil, nil
	nothingIsLeft(t)
}

func TestSeedsLeadOnAndPlainGradientsDoNot(t *testing.T) {
	x, seed := leaf([]float64{2, 3}), leaf([]float64{5, 7})
	first, second := must(distag.NewContext(background)), must(distag.NewContext(background))
	defer first.Close()
	defer second.Close()
	product, seeds := must(x.Mul(x)), []*distag.Tensor{seed}
	ok(t, first.BackwardWith(distag.BackwardOptions{Seeds: seeds, CreateGraph: true}, product))
	ok(t, second.Backward(must(must(first.Gradient(x)).Sum())))
	is64(t, must(second.Gradient(seed)), 4, 6)
	plain := must(distag.NewContext(background))
	defer plain.Close()
	ok(t, plain.BackwardWith(distag.BackwardOptions{Seeds: seeds}, product))
	is(t, plain.Backward(must(must(plain.Gradient(x)).Sum())), distag.ErrInvalidArgument)
}

// The length of the critic's gradient by its input goes to 1.
func TestGradientPenalty(t *testing.T) {
	critic, last := leaf([]float64{0.3, -0.2, 0.1, 0.4, -0.5, 0.2}, 3, 2), leaf([]float64{0.7, -0.3, 0.2})
	points := leaf([]float64{0.5, -1, 1.5, 0.2}, 2, 2)
	sgd := must(distag.NewOptimizer(nil, "sgd", []any{critic, last}, map[string]float64{"lr": 0.2}))
	var losses []float64
	for len(losses) < 60 {
		first, second := must(distag.NewContext(background)), must(distag.NewContext(background))
		scores := must(must(must(points.Linear(critic, nil)).Tanh()).Matmul(last))
		ok(t, first.BackwardWith(distag.BackwardOptions{CreateGraph: true}, must(scores.Sum())))
		slopes := must(first.Gradient(points))
		lengths := must(must(must(slopes.Mul(slopes)).Sum(distag.WithDims(1))).Sqrt())
		off := must(lengths.AddScalar(-1))
		penalty := must(must(off.Mul(off)).Mean())
		ok(t, second.Backward(penalty))
		ok(t, sgd.Step(second))
		losses = append(losses, must(penalty.Item()))
		ok(t, first.Close())
		ok(t, second.Close())
	}
	if losses[59] >= 0.1*losses[0] {
		t.Fatal(losses)
	}
}

func TestCreateGraphGoesThroughOtherWorkers(t *testing.T) {
	a, _ := pair(t, map[string]any{"square": func(x *distag.Tensor) (*distag.Tensor, error) { return x.Mul(x) }}, nil)
	x, c := leaf([]float64{2}), must(a.NewContext(background))
	defer c.Close()
	create := distag.BackwardOptions{CreateGraph: true}
	ok(t, c.BackwardWith(create, must(must(x.Mul(x)).Sum())))
	gradient := must(c.Gradient(x))
	same(t, gradient.RequiresGrad(), true)
	is64(t, gradient, 4)
	far := must(a.NewContext(background))
	defer far.Close()
	loss := must(must(distag.Invoke[*distag.Tensor](far, a, "b", "square", x)).Sum())
	ok(t, far.BackwardWith(create, loss))
	ok(t, far.Backward(must(must(far.Gradient(x)).Sum())))
	is64(t, must(far.Gradient(x)), 4+2)
}
