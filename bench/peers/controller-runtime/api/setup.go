package api

import (
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Main runs a program with warnings and errors logged, and ends it with a status that tells whether it failed.
func Main(run func() error) {
	handler := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})
	ctrl.SetLogger(logr.FromSlogHandler(handler))
	if err := run(); err != nil {
		slog.New(handler).Error("the program failed", "error", err)
		os.Exit(1)
	}
}
