// Command together is a member of the group in Go: see tests/bindings/together/README.md.
// usage: together RANK SIZE RENDEZVOUS DIGITS FIRST STEPS
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"reflect"
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

// parcel is what is sent there and back.
func (m *member) parcel(number int) []any {
	bytes := make([]byte, 1<<20)
	for i := range bytes {
		bytes[i] = byte(i + 31*m.rank + number)
	}
	return []any{[]any{int64(m.rank), int64(number), int64(9007199254740993)},
		map[string]any{"from": fmt.Sprintf("layer%d", m.rank), "number": int64(number)},
		fmt.Sprintf("Grüße aus Schicht %d, Nr. %d: äöüß €", m.rank, number), bytes,
		must(distag.Randn(int64(1000+100*m.rank+number), []int64{8, 8}))}
}

func isUnchanged(found, sent []any) bool {
	x, expected := found[4].(*distag.Tensor), sent[4].(*distag.Tensor)
	return len(found) == 5 && reflect.DeepEqual(found[:4], sent[:4]) && reflect.DeepEqual(x.Shape(), expected.Shape()) &&
		reflect.DeepEqual(must(distag.Data[float32](x)), must(distag.Data[float32](expected)))
}

func (m *member) exchange(count int) error {
	var calls []*distag.Future
	for number := 0; number < count*m.size; number++ {
		if number%m.size == m.rank {
			continue
		}
		call, err := m.worker.CallAsync(context.Background(), fmt.Sprintf("layer%d", number%m.size), "echo", m.parcel(number))
		if err != nil {
			return err
		}
		calls = append(calls, call)
	}
	answers, err := distag.WaitAll(context.Background(), calls...)
	if err != nil {
		return err
	}
	unchanged := 0
	for _, each := range answers {
		found := each.([]any)
		if isUnchanged(found, m.parcel(int(found[0].([]any)[1].(int64)))) {
			unchanged++
		}
	}
	fmt.Println("exchanged", unchanged)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (m *member) run(digits string, first, steps int) error {
	rows, classes := readDigits(digits)
	limit, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	if err := m.worker.Start(limit); err != nil {
		return err
	}
	if first < 0 {
		if err := m.exchange(steps); err != nil {
			return err
		}
	}
	for turn := 0; first >= 0 && turn < m.size; turn++ {
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

func echo(x any) (any, error) { return x, nil }

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
		Rendezvous: os.Args[3]}))
	for name, function := range map[string]any{"forward": m.forward, "step": m.step, "echo": echo} {
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
		rows, classes := readDigits(os.Args[4])
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			for step := 0; step < must(strconv.Atoi(lines.Text())); step++ {
				if err := m.train(rows, classes, 0, step, batch*step); err != nil {
					panic(err)
				}
			}
		}
		m.worker.Close()
		os.Exit(3)
	}
	m.worker.Close()
}
