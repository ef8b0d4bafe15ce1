// Command digits trains a classifier of hand-written digits whose layers live in three processes, in any language.
//
//	distag run -n 3 digits DIGITS.CSV [EPOCHS]
//
// Rank 0, "trainer", has the data, a convolution and the loss; "middle" and "last" have a layer each, and may as well be
// the program in C (samples/04_digits.c).
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"distag"
)

const (
	batch = 32
	rate  = 0.2 // of the first epoch; falls to 0 in a straight line
)

var (
	names  = []string{"trainer", "middle", "last"}
	shapes = [][]int64{{16, 1, 3, 3}, {64, 256}, {10, 64}}
	fanIn  = []float64{9, 256, 64}
)

// layer is 16 filters of 3 x 3; 256 to 64; 64 to 10.
type layer struct {
	index        int
	weight, bias *distag.Tensor
}

// newLayer has normal numbers, scaled by the fan-in (He et al. 2015).
func newLayer(index int) (*layer, error) {
	random, err := distag.Randn(int64(100+index), shapes[index])
	if err != nil {
		return nil, err
	}
	weight, err := distag.Parameter(random.MulScalar(math.Sqrt(2 / fanIn[index])))
	if err != nil {
		return nil, err
	}
	bias, err := distag.Parameter(distag.Zeros(shapes[index][:1]))
	return &layer{index, weight, bias}, err
}

// forward computes the layer. Must panics when shapes do not fit, which fails the call that led here.
func (l *layer) forward(x *distag.Tensor) (*distag.Tensor, error) {
	if l.index == 0 {
		images := distag.Must(x.Reshape([]int64{-1, 1, 8, 8}))
		filtered := distag.Must(images.Conv2d(l.weight, l.bias, distag.WithPadding(1)))
		pooled := distag.Must(distag.Must(filtered.Relu()).MaxPool2d([]int64{2, 2}))
		return pooled.Reshape([]int64{-1, 256})
	}
	y := distag.Must(x.Linear(l.weight, l.bias))
	if l.index == len(names)-1 {
		return y, nil
	}
	return y.Relu()
}

// parameters stays here with its tensors, by Remote; the optimizer gets a reference to it.
func (l *layer) parameters() []*distag.Tensor { return []*distag.Tensor{l.weight, l.bias} }

// images are rows of pixels and their classes.
type images struct {
	pixels  [][]float32
	classes []int64
}

// readImages gives those to train with, and every fifth line, which is held out.
func readImages(path string) (train, heldOut images, err error) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		set := &train
		if number%5 == 0 {
			set = &heldOut
		}
		row := make([]float32, 0, 65)
		for _, text := range strings.Split(lines.Text(), ",") {
			value, err := strconv.Atoi(text)
			if err != nil {
				return train, heldOut, fmt.Errorf("%s: line %d: %w", path, number, err)
			}
			row = append(row, float32(value)/16)
		}
		set.pixels = append(set.pixels, row[:64])
		set.classes = append(set.classes, int64(row[64]*16))
	}
	return train, heldOut, lines.Err()
}

// shuffle gives the same order on every run: a linear congruential generator (Knuth, MMIX).
func (s *images) shuffle(seed uint64) {
	for i := len(s.classes) - 1; i > 0; i-- {
		seed = seed*6364136223846793005 + 1442695040888963407
		j := (seed >> 33) % uint64(i+1)
		s.pixels[i], s.pixels[j] = s.pixels[j], s.pixels[i]
		s.classes[i], s.classes[j] = s.classes[j], s.classes[i]
	}
}

func (s *images) batch(begin, end int) (x, targets *distag.Tensor, err error) {
	rows := make([]float32, 0, 64*(end-begin))
	for _, row := range s.pixels[begin:end] {
		rows = append(rows, row...)
	}
	if x, err = distag.From(rows, int64(end-begin), 64); err == nil {
		targets, err = distag.From(s.classes[begin:end])
	}
	return x, targets, err
}

// trainer has the steps of rank 0.
type trainer struct {
	worker *distag.Worker
	own    *layer
	sgd    *distag.Optimizer
	steps  int
}

// logits go through all three processes; without a distag.Context nothing is recorded.
func (t *trainer) logits(ctx context.Context, x *distag.Tensor) (*distag.Tensor, error) {
	x, err := t.own.forward(x)
	for _, name := range names[1:] {
		if err == nil {
			x, err = distag.Invoke[*distag.Tensor](ctx, t.worker, name, "forward", x)
		}
	}
	return x, err
}

// step is one batch: forward, backward, step. It gives the loss.
func (t *trainer) step(ctx context.Context, set *images, begin, end int) (float64, error) {
	scope := distag.NewScope()
	defer scope.Close()
	x, targets, err := set.batch(begin, end)
	if err != nil {
		return 0, err
	}
	scope.Add(x, targets) // and with them all that is computed from them here
	record, err := t.worker.NewContext(ctx)
	if err != nil {
		return 0, err
	}
	defer record.Close()
	logits, err := t.logits(record, x)
	if err != nil {
		return 0, err
	}
	scope.Add(logits)
	loss, err := logits.CrossEntropy(targets)
	if err != nil {
		return 0, err
	}
	if err := record.Backward(loss); err != nil {
		return 0, err
	}
	if err := t.sgd.Step(record); err != nil {
		return 0, err
	}
	t.steps++
	return loss.Item()
}

func (t *trainer) accuracy(ctx context.Context, set *images) (float64, error) {
	x, targets, err := set.batch(0, len(set.classes))
	if err != nil {
		return 0, err
	}
	logits, err := t.logits(ctx, x)
	if err != nil {
		return 0, err
	}
	best := distag.Must(logits.Argmax(distag.WithDim(1)))
	return distag.Must(distag.Must(distag.Must(best.Eq(targets)).Cast(distag.Float32)).Mean()).Item()
}

func (t *trainer) epoch(ctx context.Context, set *images) (float64, error) {
	sum, count := 0.0, 0
	for begin := 0; begin < len(set.classes); begin += batch {
		end := begin + batch
		if end > len(set.classes) {
			end = len(set.classes)
		}
		loss, err := t.step(ctx, set, begin, end)
		if err != nil {
			return 0, err
		}
		sum, count = sum+loss, count+1
	}
	return sum / float64(count), nil
}

func (t *trainer) train(ctx context.Context, path string, epochs int) error {
	set, heldOut, err := readImages(path)
	if err != nil {
		return err
	}
	parameters := []any{t.own.weight, t.own.bias}
	for _, name := range names[1:] {
		remote, err := t.worker.Remote(ctx, name, "parameters")
		if err != nil {
			return err
		}
		defer remote.Close()
		parameters = append(parameters, remote)
	}
	if t.sgd, err = distag.NewOptimizer(t.worker, "sgd", parameters, nil); err != nil {
		return err
	}
	defer t.sgd.Close()
	var spent time.Duration
	var accuracy float64
	for epoch := 1; epoch <= epochs; epoch++ {
		set.shuffle(uint64(epoch))
		if err := t.sgd.Set("lr", rate*float64(epochs-epoch+1)/float64(epochs)); err != nil {
			return err
		}
		begin := time.Now()
		loss, err := t.epoch(ctx, &set)
		if err != nil {
			return err
		}
		spent += time.Since(begin)
		if accuracy, err = t.accuracy(ctx, &heldOut); err != nil {
			return err
		}
		fmt.Printf("epoch %2d of %d   loss %.4f   held-out accuracy %.4f\n", epoch, epochs, loss, accuracy)
	}
	fmt.Printf("held-out accuracy %.4f on %d images, after %d steps over %d processes\n", accuracy, len(heldOut.classes),
		t.steps, len(names))
	fmt.Printf("%.0f steps per second\n", float64(t.steps)/spent.Seconds())
	return nil
}

func work(rank int, path string, epochs int) error {
	ctx := context.Background()
	own, err := newLayer(rank)
	if err != nil {
		return err
	}
	worker, err := distag.NewWorker(distag.Options{Name: names[rank]}) // rank, size and address come from distag run
	if err != nil {
		return err
	}
	defer worker.Close()
	if err := worker.Register("forward", own.forward); err != nil {
		return err
	}
	if err := worker.Register("parameters", own.parameters); err != nil {
		return err
	}
	start, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := worker.Start(start); err != nil {
		return err
	}
	if rank == 0 {
		t := trainer{worker: worker, own: own}
		if err := t.train(ctx, path, epochs); err != nil {
			return err
		}
	}
	_, err = worker.Shutdown(ctx) // serves until all others shut down too
	return err
}

func main() {
	log.SetFlags(0)
	rank, err := strconv.Atoi(os.Getenv("RANK"))
	if len(os.Args) < 2 || err != nil || rank < 0 || rank >= len(names) {
		log.Fatalf("usage: distag run -n %d %s DIGITS.CSV [EPOCHS]", len(names), os.Args[0])
	}
	epochs := 30
	if len(os.Args) > 2 {
		if epochs, err = strconv.Atoi(os.Args[2]); err != nil {
			log.Fatal(err)
		}
	}
	if err := work(rank, os.Args[1], epochs); err != nil {
		log.Fatalf("%s: %v", names[rank], err)
	}
}
