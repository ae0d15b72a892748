// The Temporal worker of `cargo xtask bench peers`: a unit is an activity that posts to the receiver and is completed by
// its token.
//
// POST /chain or /fan with a number of units runs a workflow and answers when it has ended. A result comes as
// POST /results/TOKEN.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

type result struct{ Outputs struct{ Value string } }

var receiver, own string
var sender = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}

// Unit posts a unit to the receiver. Its result comes later.
func Unit(ctx context.Context, unit string, read []string) (string, error) {
	body, err := json.Marshal(map[string]any{"unit": unit, "read": read})
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, "POST", receiver, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	token := base64.RawURLEncoding.EncodeToString(activity.GetInfo(ctx).TaskToken)
	request.Header.Set("ebb-callback-url", own+"/results/"+token)
	response, err := sender.Do(request)
	if err != nil {
		return "", err
	}
	response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		return "", fmt.Errorf("the receiver answered %s", response.Status)
	}
	return "", activity.ErrResultPending
}

// units runs units at the same time and returns their results.
func units(ctx workflow.Context, names, read []string) ([]string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	started := make([]workflow.Future, len(names))
	for index, name := range names {
		started[index] = workflow.ExecuteActivity(ctx, Unit, name, read)
	}
	values := make([]string, len(names))
	for index, future := range started {
		if err := future.Get(ctx, &values[index]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func names(count int) (names []string) {
	for index := range count {
		names = append(names, fmt.Sprint("u", index))
	}
	return names
}

func chain(ctx workflow.Context, count int) (err error) {
	var read []string
	for _, name := range names(count) {
		if read, err = units(ctx, []string{name}, read); err != nil {
			return err
		}
	}
	return nil
}

func fan(ctx workflow.Context, count int) error {
	read, err := units(ctx, []string{"first"}, nil)
	if err != nil {
		return err
	}
	if read, err = units(ctx, names(count), read); err != nil {
		return err
	}
	_, err = units(ctx, []string{"last"}, read)
	return err
}

func main() {
	receiver = os.Getenv("RECEIVER")
	logger := log.NewStructuredLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	temporal := must(client.Dial(client.Options{HostPort: os.Getenv("TEMPORAL"), Logger: logger}))
	served := worker.New(temporal, "peers", worker.Options{})
	served.RegisterActivity(Unit)
	for name, shape := range map[string]any{"chain": chain, "fan": fan} {
		served.RegisterWorkflowWithOptions(shape, workflow.RegisterOptions{Name: name})
		http.HandleFunc("POST /"+name, func(response http.ResponseWriter, request *http.Request) {
			answer(response, func() error { return run(request, temporal, name) })
		})
	}
	http.HandleFunc("POST /results/{token}", func(response http.ResponseWriter, request *http.Request) {
		answer(response, func() error {
			token, err := base64.RawURLEncoding.DecodeString(request.PathValue("token"))
			if err != nil {
				return err
			}
			var got result
			if err := json.NewDecoder(request.Body).Decode(&got); err != nil {
				return err
			}
			return temporal.CompleteActivity(request.Context(), token, got.Outputs.Value, nil)
		})
	})
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	own = "http://" + listener.Addr().String()
	if err := served.Start(); err != nil {
		panic(err)
	}
	fmt.Println("port", listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, nil))
}

func run(request *http.Request, temporal client.Client, name string) error {
	var count int
	if err := json.NewDecoder(request.Body).Decode(&count); err != nil {
		return err
	}
	started, err := temporal.ExecuteWorkflow(request.Context(), client.StartWorkflowOptions{TaskQueue: "peers"}, name, count)
	if err != nil {
		return err
	}
	return started.Get(request.Context(), nil)
}

// answer answers 503 on an error, so that the sender repeats the request.
func answer(response http.ResponseWriter, do func() error) {
	if err := do(); err != nil {
		http.Error(response, err.Error(), http.StatusServiceUnavailable)
	} else {
		response.WriteHeader(http.StatusNoContent)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
