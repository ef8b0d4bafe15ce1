// Command together is a member of the group in Go: see tests/bindings/together/README.md.
// usage: together RANK SIZE FOLDER DIGITS FIRST STEPS
package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"distag"
)

const batch, count = 32, 1600

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func readDigits(path string) (rows [][]float32, classes []int64) {
	for _, line := range strings.Fields(string(must(os.ReadFile(path)))) {
		var row []float32
		for _, text := range strings.Split(line, ",") {
			row = append(row, float32(must(strconv.Atoi(text)))/16)
		}
		rows, classes = append(rows, row[:64]), append(classes, int64(row[64]*16))
	}
	return rows, classes
}

// member has a layer of the model.
type member struct {
	rank, size   int
	weight, bias *distag.Tensor
	sgd          *distag.Optimizer
	worker       *distag.Worker
}

func (m *member) forward(x *distag.Tensor) (*distag.Tensor, error) {
	y, err := x.Linear(m.weight, m.bias)
	if err != nil || m.rank == m.size-1 {
		return y, err
	}
	return y.Relu()
}

func (m *member) step(ctx context.Context) (int64, error) {
	record := distag.ContextOf(ctx)
	if err := m.sgd.Step(record); err != nil {
		return 0, err
	}
	gradients, err := record.Gradients()
	if err != nil {
		return 0, err
	}
	defer gradients.Close()
	sum := uint32(0)
	for _, each := range []*distag.Tensor{m.weight, gradients.Find(m.weight), m.bias, gradients.Find(m.bias)} {
		err := distag.View(each, func(data []float32) error {
			sum = crc32.Update(sum, crc32.IEEETable, unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), 4*len(data)))
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return int64(sum), nil
}

func (m *member) train(rows [][]float32, classes []int64, turn, number, begin int) error {
	var pixels []float32
	for _, row := range rows[begin : begin+batch] {
		pixels = append(pixels, row...)
	}
	record, err := m.worker.NewContext(context.Background())
	if err != nil {
		return err
	}
	defer record.Close()
	x := must(distag.From(pixels, batch, 64))
	for rank := 0; rank < m.size; rank++ {
		if x, err = distag.Invoke[*distag.Tensor](record, m.worker, fmt.Sprintf("layer%d", rank), "forward", x); err != nil {
			return err
		}
	}
	loss, err := x.CrossEntropy(must(distag.From(classes[begin : begin+batch])))
	if err != nil {
		return err
	}
	if err := record.Backward(loss); err != nil {
		return err
	}
	line := fmt.Sprintf("%d %d %08x", turn, number, math.Float32bits(float32(must(loss.Item()))))
	for rank := 0; rank < m.size; rank++ {
		sum, err := distag.Invoke[int64](record, m.worker, fmt.Sprintf("layer%d", rank), "step")
		if err != nil {
			return err
		}
		line += fmt.Sprintf(" %d", sum)
	}
	fmt.Println(line)
	return nil
}

func (m *member) run(digits string, first, steps int) error {
	rows, classes := readDigits(digits)
	limit, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	if err := m.worker.Start(limit); err != nil {
		return err
	}
	for turn := 0; turn < m.size; turn++ {
		for number := 0; number < steps && (first+turn)%m.size == m.rank; number++ {
			if err := m.train(rows, classes, turn, number, batch*(steps*turn+number)%count); err != nil {
				return err
			}
		}
		limit, cancel := context.WithTimeout(context.Background(), 120*time.Second)
		defer cancel()
		if _, err := m.worker.AllGather(limit, nil, nil); err != nil {
			return err
		}
	}
	limit, cancel = context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	_, err := m.worker.Shutdown(limit)
	return err
}

func main() {
	number := func(place int) int { return must(strconv.Atoi(os.Args[place])) }
	m := &member{rank: number(1), size: number(2)}
	rows, columns := int64(32), int64(32)
	if m.rank == 0 {
		columns = 64
	}
	if m.rank == m.size-1 {
		rows = 10
	}
	m.weight = must(distag.Parameter(must(distag.Randn(int64(100+m.rank), []int64{rows, columns})).MulScalar(0.2)))
	m.bias = must(distag.Parameter(distag.Zeros([]int64{rows})))
	m.worker = must(distag.NewWorker(distag.Options{Name: fmt.Sprintf("layer%d", m.rank), Rank: m.rank, WorldSize: m.size,
		Rendezvous: "file://" + os.Args[3]}))
	for name, function := range map[string]any{"forward": m.forward, "step": m.step} {
		if err := m.worker.Register(name, function); err != nil {
			panic(err)
		}
	}
	m.sgd = must(distag.NewOptimizer(m.worker, "sgd", []any{m.weight, m.bias}, map[string]float64{"lr": 0.1, "momentum": 0.9}))
	if err := m.run(os.Args[4], number(5), number(6)); err != nil {
		var failure *distag.Error
		if !errors.As(err, &failure) {
			panic(err)
		}
		fmt.Println("failed", int(failure.Code), failure.Message)
		io.Copy(io.Discard, os.Stdin)
		m.worker.Close()
		os.Exit(3)
	}
	m.worker.Close()
}
