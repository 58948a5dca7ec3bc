//! Spans of jobs, their partitions and stages to an OpenTelemetry collector, in builds with the feature `otlp`.

use std::time::Duration;

use cuzk::telemetry::ExtraLayer;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::WithExportConfig;
use opentelemetry_sdk::trace::SdkTracerProvider;
use opentelemetry_sdk::Resource;

use crate::failure::Failure;

/// What the last spans may take: a collector that does not answer must not hold up the end.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// Keeps spans flowing. Dropped at the end, while the runtime that sends is still there: what is buffered is sent then.
pub struct Collector {
    provider: SdkTracerProvider,
}

impl Collector {
    /// A layer that sends to `endpoint`, such as `http://127.0.0.1:4317`. Nothing is sent yet, and a collector that does not
    /// answer is no error. To be called within the runtime that sends.
    ///
    /// # Errors
    /// If the endpoint is no address.
    pub fn start(endpoint: &str) -> Result<(Self, ExtraLayer), Failure> {
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .build()
            .map_err(|error| Failure::config(format!("telemetry.otlp_endpoint: {endpoint}: {error}")))?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(Resource::builder().with_service_name("cuzk-daemon").build())
            .build();
        let tracer = provider.tracer("cuzk-daemon");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        Ok((Self { provider }, Box::new(layer)))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Err(error) = self.provider.shutdown_with_timeout(LAST_SPANS) {
            eprintln!("warning: the last spans were not sent: {error}");
        }
    }
}
