package unit

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"distag"
)

func TestEnvironment(t *testing.T) {
	for _, variable := range os.Environ() { // whatever has started this
		name := strings.SplitN(variable, "=", 2)[0]
		if name != "PATH" && name != "LD_LIBRARY_PATH" {
			t.Setenv(name, "") // an empty one counts as not set
		}
	}
	_, err := distag.ReadEnvironment()
	is(t, err, distag.ErrInvalidArgument, "WORLD_SIZE, RANK;")
	for name, value := range map[string]string{"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
		"GROUP_RANK": "1", "TORCHELASTIC_RESTART_COUNT": "2"} {
		t.Setenv(name, value)
	}
	same(t, must(distag.ReadEnvironment()), distag.Environment{Rank: 3, WorldSize: 4, LocalRank: 1, LocalSize: 2, Node: 1,
		Restart: 2, Launcher: "torchrun"})
	t.Setenv("DISTAG_RANK", "-1")
	t.Setenv("DISTAG_WORLD_SIZE", "-1")
	same(t, must(distag.ReadEnvironment()), distag.Environment{Rank: -1, WorldSize: -1, LocalRank: -1, Node: -1, Launcher: "own"})
	t.Setenv("DISTAG_RANK", "1x")
	_, err = distag.ReadEnvironment()
	is(t, err, distag.ErrInvalidArgument, `"1x"`)
}

func TestSocketEngine(t *testing.T) {
	for name, engine := range map[string]distag.SocketEngine{"zmq": distag.SocketEngineZMQ, "zmtp": distag.SocketEngineZMTP} {
		worker := must(distag.NewWorker(distag.Options{WorldSize: 1, Rendezvous: "file://" + t.TempDir(), SocketEngine: engine}))
		ok(t, worker.Start(context.Background()))
		if report := must(worker.Report()); !strings.Contains(report, `"engine": "`+name+`"`) {
			t.Fatal(report)
		}
		must(worker.Shutdown(context.Background()))
		ok(t, worker.Close())
	}
}

func TestTrace(t *testing.T) {
	folder := t.TempDir()
	a, b := pair(t, map[string]any{"double": func(x int64) int64 { return 2 * x }}, nil)
	before, err := a.Trace("before")
	ok(t, err)
	before()
	ok(t, a.StartTrace(distag.TraceOptions{Folder: folder, MaxBytes: 1 << 20}))
	func() {
		defer func() { same(t, recover().(string), "in the step") }()
		epoch, err := a.Trace("epoch α")
		ok(t, err)
		defer epoch()
		step, err := a.Trace("step")
		ok(t, err)
		defer step()
		same(t, must(distag.Invoke[int](background, a, "b", "double", 4)), 8)
		panic("in the step")
	}()
	again, err := a.Trace("again")
	ok(t, err)
	again()
	again() // a second time
	before()
	is(t, a.StartTrace(distag.TraceOptions{Folder: folder}), distag.ErrInvalidState, "stop it first")
	is(t, b.StartTrace(distag.TraceOptions{Folder: filepath.Join(folder, "none")}), distag.ErrInvalidState)
	is(t, b.StartTrace(distag.TraceOptions{Folder: "a\x00b"}), distag.ErrInvalidArgument, "NUL")
	is(t, b.StartTrace(distag.TraceOptions{Folder: folder, MaxBytes: 1}), distag.ErrInvalidArgument, "max_bytes")
	for _, label := range []string{strings.Repeat("x", 128), "a\x00b"} {
		end, err := a.Trace(label)
		is(t, err, distag.ErrInvalidArgument)
		end()
	}
	ok(t, a.StopTrace())
	ok(t, a.StopTrace())
	var events []struct{ Name, Ph string }
	ok(t, json.Unmarshal(must(os.ReadFile(filepath.Join(folder, "a.trace.json"))), &events))
	var begun []string
	for _, event := range events {
		if event.Ph == "b" && event.Name != "double" { // the call has one too
			begun = append(begun, event.Name)
		}
	}
	same(t, strings.Join(begun, ", "), "step, epoch α, again")
}

// A span that ends after its worker, and all else of a worker that is closed.
func TestTraceAfterClose(t *testing.T) {
	w := must(distag.NewWorker(distag.Options{Name: "w", WorldSize: 1, Rendezvous: "inproc://traced"}))
	is(t, w.StartTrace(distag.TraceOptions{Folder: t.TempDir()}), distag.ErrInvalidState, "not started")
	ok(t, w.Start(background))
	ok(t, w.StartTrace(distag.TraceOptions{Folder: t.TempDir()}))
	end, err := w.Trace("late")
	ok(t, err)
	ok(t, w.Close())
	end()
	_, err = w.Trace("later")
	is(t, err, distag.ErrInvalidArgument)
	is(t, w.StartTrace(distag.TraceOptions{}), distag.ErrInvalidArgument)
	is(t, w.StopTrace(), distag.ErrInvalidArgument)
	_, err = w.Metrics()
	is(t, err, distag.ErrInvalidArgument)
	nothingIsLeft(t)
}

func TestMetrics(t *testing.T) {
	a, _ := pair(t, map[string]any{"double": func(x int64) int64 { return 2 * x }}, nil)
	same(t, must(distag.Invoke[int](background, a, "b", "double", 4)), 8)
	lines := "\n" + must(a.Metrics())
	for _, line := range []string{"# TYPE distag_calls_made_total counter", `distag_calls_made_total{worker="a"} 1`} {
		same(t, strings.Contains(lines, "\n"+line+"\n"), true)
	}
}

func TestPictures(t *testing.T) {
	const grid = "{devices=[2,2]0,1,2,3}"
	text := must(distag.VisualizeSharding(grid, nil, distag.PictureOptions{Label: "TPU"}))
	same(t, strings.Contains(text, "│ TPU 0 │ TPU 1 │\n"), true)
	svg := must(distag.VisualizeSharding(grid, []int64{4, 6}, distag.PictureOptions{Format: distag.PictureSVG, Label: "<w>"}))
	same(t, strings.HasPrefix(svg, "<svg ") && strings.HasSuffix(svg, "</svg>\n"), true)
	same(t, strings.Contains(svg, "0:2, 0:3: &lt;w&gt; 0\n"), true)
	same(t, must(distag.VisualizeSharding("{devices=[2]0,1}", []int64{4}, distag.PictureOptions{Format: distag.PictureJSON})),
		`{"boxes":[{"offset":[0],"extent":[2],"members":[0]},{"offset":[2],"extent":[2],"members":[1]}]}`)
	for _, wrong := range []distag.PictureOptions{{Width: 5}, {Width: -1}, {Width: 1 << 32}, {Row: 7}, {Label: "a\x00b"}} {
		_, err := distag.VisualizeSharding(grid, nil, wrong)
		is(t, err, distag.ErrInvalidArgument)
	}
	_, err := distag.VisualizeSharding("('data',)", nil, distag.PictureOptions{})
	is(t, err, distag.ErrInvalidArgument)
	w := must(distag.NewWorker(distag.Options{Name: "w", WorldSize: 1, Rendezvous: "inproc://drawn"}))
	defer w.Close()
	ok(t, w.Start(background))
	mesh := must(w.NewMesh(background, distag.MeshAxis{Name: "data", Size: 1}))
	drawn := must(mesh.Visualize("('data', None)", []int64{2, 3}, distag.PictureOptions{Format: distag.PictureSVG}))
	same(t, strings.Contains(drawn, "0:2, 0:3: CPU 0\n"), true)
	ok(t, mesh.Close())
	_, err = mesh.Visualize("('data', None)", nil, distag.PictureOptions{})
	is(t, err, distag.ErrInvalidArgument, "the mesh is closed")
	_, err = (*distag.Mesh)(nil).Visualize("('data', None)", nil, distag.PictureOptions{})
	is(t, err, distag.ErrInvalidArgument, "the mesh is nil")
}
