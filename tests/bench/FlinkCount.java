import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Counts and sums the values of each key in tumbling windows with Flink, up to the current end of a topic. Key, value
 * and event time are fields of the JSON.
 *
 * <p>The aggregation has two phases. The first one aggregates in each source task, before the key is partitioned. It
 * emits at the end of a window, at a checkpoint, and when it holds many keys.
 *
 * <p>Arguments: bootstrap servers, source topic, output topic, window ms, checkpoint interval ms, folder of
 * checkpoints, parallelism.
 */
public final class FlinkCount {
    private static final int HELD_PARTIALS = 200_000;

    /** Partial or final result of a key in a window. As an event it has a count of 1. */
    public static final class Partial {
        public String key;
        public long window;
        public long count;
        public long sum;

        private void add(Partial other) {
            count += other.count;
            sum += other.sum;
        }
    }

    private static final TypeInformation<Partial> PARTIAL = Types.POJO(Partial.class);

    /** Parses records into one reused object, which the next operator does not keep. */
    private static final class Parse implements KafkaRecordDeserializationSchema<Partial> {
        private static final JsonFactory JSON = new JsonFactory();
        private final long windowMs;
        private transient Partial event;

        private Parse(long windowMs) {
            this.windowMs = windowMs;
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Partial> out) throws IOException {
            if (event == null) {
                event = new Partial();
            }
            event.count = 1;
            try (JsonParser parser = JSON.createParser(record.value())) {
                parser.nextToken();
                for (String name = parser.nextFieldName(); name != null; name = parser.nextFieldName()) {
                    JsonToken token = parser.nextToken();
                    switch (name) {
                        case "key" -> event.key = parser.getText();
                        case "value" -> event.sum = parser.getLongValue();
                        case "time" -> event.window = parser.getLongValue() / windowMs * windowMs;
                        default -> {
                            if (token.isStructStart()) {
                                parser.skipChildren();
                            }
                        }
                    }
                }
            }
            out.collect(event);
        }

        @Override
        public TypeInformation<Partial> getProducedType() {
            return PARTIAL;
        }
    }

    /** Aggregates before the shuffle. It emits everything before a checkpoint, so it has no state. */
    private static final class PreAggregate extends AbstractStreamOperator<Partial>
            implements OneInputStreamOperator<Partial, Partial> {
        private final long windowMs;
        private transient Map<Long, Map<String, Partial>> windows;
        private transient Map<String, Partial> latest;
        private transient long latestWindow;
        private transient int held;

        private PreAggregate(long windowMs) {
            this.windowMs = windowMs;
        }

        @Override
        public void open() throws Exception {
            super.open();
            windows = new HashMap<>();
        }

        @Override
        public void processElement(StreamRecord<Partial> element) {
            Partial event = element.getValue();
            if (latest == null || event.window != latestWindow) {
                latestWindow = event.window;
                latest = windows.computeIfAbsent(latestWindow, window -> new HashMap<>());
            }
            Partial partial = latest.get(event.key);
            if (partial == null) {
                partial = new Partial();
                partial.key = event.key;
                partial.window = event.window;
                latest.put(event.key, partial);
                held++;
            }
            partial.add(event);
            if (held >= HELD_PARTIALS) {
                emitUntil(Long.MAX_VALUE);
            }
        }

        @Override
        public void processWatermark(Watermark mark) throws Exception {
            emitUntil(mark.getTimestamp());
            super.processWatermark(mark);
        }

        @Override
        public void prepareSnapshotPreBarrier(long checkpoint) {
            emitUntil(Long.MAX_VALUE);
        }

        @Override
        public void finish() throws Exception {
            emitUntil(Long.MAX_VALUE);
            super.finish();
        }

        private void emitUntil(long time) {
            Iterator<Map.Entry<Long, Map<String, Partial>>> each = windows.entrySet().iterator();
            while (each.hasNext()) {
                Map.Entry<Long, Map<String, Partial>> entry = each.next();
                if (entry.getKey() + windowMs - 1 <= time) {
                    for (Partial partial : entry.getValue().values()) {
                        output.collect(new StreamRecord<>(partial, entry.getKey()));
                    }
                    held -= entry.getValue().size();
                    each.remove();
                    latest = null;
                }
            }
        }
    }

    /** Merges the partials of a key and window. */
    private static final class Merge implements AggregateFunction<Partial, Partial, Partial> {
        @Override
        public Partial createAccumulator() {
            return new Partial();
        }

        @Override
        public Partial add(Partial partial, Partial sum) {
            sum.key = partial.key;
            sum.window = partial.window;
            sum.add(partial);
            return sum;
        }

        @Override
        public Partial getResult(Partial sum) {
            return sum;
        }

        @Override
        public Partial merge(Partial one, Partial other) {
            return add(one, other);
        }
    }

    public static void main(String[] args) throws Exception {
        long windowMs = Long.parseLong(args[3]);
        String topic = args[2];
        Configuration options = new Configuration();
        options.setString("pipeline.object-reuse", "true");
        options.setString("pipeline.generic-types", "false");
        options.setString("execution.checkpointing.interval", args[4] + " ms");
        options.setString("execution.checkpointing.storage", "filesystem");
        options.setString("execution.checkpointing.dir", "file://" + args[5]);
        options.setString("restart-strategy.type", "none");
        options.setString("rest.bind-port", "0");
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(args[6]), options);
        KafkaSource<Partial> source = KafkaSource.<Partial>builder()
                .setBootstrapServers(args[0])
                .setGroupId(topic)
                .setTopics(args[1])
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setDeserializer(new Parse(windowMs))
                .build();
        // The timestamp of a record is its event time. The watermarks are those of each partition.
        WatermarkStrategy<Partial> watermarks = WatermarkStrategy.forMonotonousTimestamps();
        KafkaSink<Partial> sink = KafkaSink.<Partial>builder()
                .setBootstrapServers(args[0])
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(topic)
                .setProperty("transaction.timeout.ms", "600000")
                .setProperty("compression.type", "lz4")
                .setProperty("linger.ms", "20")
                .setProperty("batch.size", "131072")
                .setRecordSerializer((KafkaRecordSerializationSchema<Partial>) (result, context, timestamp) ->
                        new ProducerRecord<>(topic, bytes(result.key), bytes(json(result))))
                .build();
        environment
                .fromSource(source, watermarks, "source", PARTIAL)
                .transform("pre-aggregate", PARTIAL, new PreAggregate(windowMs))
                .keyBy(partial -> partial.key, Types.STRING)
                .window(TumblingEventTimeWindows.of(Duration.ofMillis(windowMs)))
                .aggregate(new Merge(), PARTIAL, PARTIAL)
                .sinkTo(sink);
        environment.execute();
    }

    private static String json(Partial result) {
        return "{\"key\":\"" + result.key + "\",\"window_start\":" + result.window + ",\"count\":" + result.count
                + ",\"sum\":" + result.sum + "}";
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
