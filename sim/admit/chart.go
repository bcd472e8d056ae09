package admit

import (
	"cmp"
	"fmt"
	"image/color"
	"path/filepath"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/warmpath/warmpath/shared/policy"
)

// colors of the classes, and of what is drawn beside them (Okabe and Ito, 2008).
var colors = []color.Color{
	color.RGBA{0, 114, 178, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{0, 158, 115, 255}, color.RGBA{120, 120, 120, 255},
}

// Charts draws a run into a folder: what the classes have in use and waiting, the times to first
// token, and the shares. Each is a PNG and an SVG; the files' names are returned.
func (r *Result) Charts(folder, name string) ([]string, error) {
	var files []string
	for _, chart := range []struct {
		kind string
		plot func(p *plot.Plot) error
	}{{"slots", r.drawSlots}, {"ttft", r.drawTTFT}, {"shares", r.drawShares}} {
		p := plot.New()
		p.BackgroundColor = color.White
		p.X.Label.Text = "seconds"
		p.Legend.Top = true
		if err := chart.plot(p); err != nil {
			return files, fmt.Errorf("draw %s of %s: %w", chart.kind, name, err)
		}
		p.Title.Text = name + ": " + p.Title.Text
		p.Y.Max += 0.3 * (p.Y.Max - p.Y.Min) // where the legend is
		for _, ending := range []string{".png", ".svg"} {
			file := filepath.Join(folder, name+"-"+chart.kind+ending)
			if err := p.Save(8*vg.Inch, 4*vg.Inch, file); err != nil {
				return files, fmt.Errorf("write %s: %w", file, err)
			}
			files = append(files, file)
		}
	}
	return files, nil
}

// lines draws what f says of each sample, for each class.
func (r *Result) lines(p *plot.Plot, label string, dashed bool, f func(s *Sample, class int) float64) error {
	for c := range policy.Classes {
		points := make(plotter.XYs, len(r.Samples))
		any := false
		for i := range r.Samples {
			points[i] = plotter.XY{X: r.Samples[i].At.Seconds(), Y: f(&r.Samples[i], c)}
			any = any || points[i].Y != 0
		}
		if !any {
			continue
		}
		l, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		l.Color, l.Width = colors[c], vg.Points(1.2)
		if dashed {
			l.Dashes = []vg.Length{vg.Points(3), vg.Points(3)}
		}
		p.Add(l)
		p.Legend.Add("P"+strconv.Itoa(c)+" "+label, l)
	}
	return nil
}

func (r *Result) drawSlots(p *plot.Plot) error {
	p.Title.Text, p.Y.Label.Text = "requests at the workers, and waiting in the gateways", "requests"
	if err := r.lines(p, "in use", false, func(s *Sample, c int) float64 { return float64(s.InUse[c]) }); err != nil {
		return err
	}
	return r.lines(p, "waiting", true, func(s *Sample, c int) float64 { return float64(s.Waiting[c]) })
}

// drawTTFT has a point for each request that was answered, at the time it came.
func (r *Result) drawTTFT(p *plot.Plot) error {
	p.Title.Text, p.Y.Label.Text = "time to first token of each request, and refusals below", "seconds"
	for c := range policy.Classes {
		var answered, refused plotter.XYs
		for _, rec := range r.Of(Class(c)) {
			if ttft, ok := rec.TTFT(); ok {
				answered = append(answered, plotter.XY{X: rec.Arrived.Seconds(), Y: ttft.Seconds()})
			} else if rec.Ended >= 0 {
				refused = append(refused, plotter.XY{X: rec.Arrived.Seconds(), Y: -0.1 * float64(c+1)})
			}
		}
		for i, points := range []plotter.XYs{answered, refused} {
			if len(points) == 0 {
				continue
			}
			s, err := plotter.NewScatter(points)
			if err != nil {
				return err
			}
			s.Color, s.Radius = colors[c], vg.Points(1)
			if i == 1 {
				s.Shape, s.Radius = draw.CrossGlyph{}, vg.Points(2)
			}
			p.Add(s)
			p.Legend.Add(fmt.Sprintf("P%d %s (%d)", c, [...]string{"answered", "refused or failed"}[i], len(points)), s)
		}
	}
	return r.objective(p)
}

// level draws a level over the whole run.
func (r *Result) level(p *plot.Plot, name string, color color.Color, y float64) error {
	l, err := plotter.NewLine(plotter.XYs{{X: 0, Y: y}, {X: r.Config.Length.Seconds(), Y: y}})
	if err != nil {
		return err
	}
	l.Color, l.Width, l.Dashes = color, vg.Points(0.8), []vg.Length{vg.Points(1), vg.Points(2)}
	p.Add(l)
	p.Legend.Add(name, l)
	return nil
}

// settings are those of the run, the defaults of one that lets everything through.
func (r *Result) settings() (*policy.Admission, error) {
	return policy.ParseAdmission([]byte(cmp.Or(r.Config.Admission, "{}")))
}

// objective draws P0's.
func (r *Result) objective(p *plot.Plot) error {
	a, err := r.settings()
	if err != nil {
		return err
	}
	return r.level(p, "P0's objective", colors[3], a.Classes[0].ObjectiveTTFT.Seconds())
}

func (r *Result) drawShares(p *plot.Plot) error {
	p.Title.Text, p.Y.Label.Text = "shares in force with their floors, and P0's p99 of each second in seconds", "share, seconds"
	a, err := r.settings()
	if err != nil {
		return err
	}
	for c := 1; c < policy.Classes && r.Config.Admission != ""; c++ {
		if floor := a.Classes[c].Floor; floor > 0 {
			if err := r.level(p, fmt.Sprintf("P%d floor", c), colors[c], floor); err != nil {
				return err
			}
		}
	}
	if err := r.objective(p); err != nil {
		return err
	}
	if err := r.lines(p, "share", false, func(s *Sample, c int) float64 { return s.Shares.Class[c] }); err != nil {
		return err
	}
	return r.lines(p, "p99 TTFT", true, func(s *Sample, c int) float64 {
		if c > 0 {
			return 0
		}
		return (time.Duration(s.P99Millis[c]) * time.Millisecond).Seconds()
	})
}
