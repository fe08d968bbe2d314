import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.common.configuration.PulsarConfigurationLoader;

/**
 * What a broker reads in each file of broker-conf.json: the values of the keys that are asked for, or that it does not
 * start. From the folder of this file, with Pulsar's jars (tests.e2e.artifacts fetches them):
 * java -cp "JARS/5.0.0-M1/*" ReadBrokerConf.java broker-conf.json defaults-5.0.0-M1.json
 */
public class ReadBrokerConf {
    public static void main(String[] files) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        Path path = Path.of(files[0]);
        List<String> lines = new ArrayList<>();
        List<Map<String, Object>> cases = mapper.readValue(path.toFile(), List.class);
        for (Map<String, Object> each : cases) {
            byte[] content = ((String) each.get("content")).getBytes(StandardCharsets.ISO_8859_1);
            Map<String, Object> values = (Map<String, Object>) each.computeIfAbsent("values", k -> new TreeMap<>());
            each.remove("refused");
            for (String key : List.copyOf(((List<String>) each.get("keys")))) {
                try {
                    ServiceConfiguration read = PulsarConfigurationLoader.create(
                            new ByteArrayInputStream(content), ServiceConfiguration.class);
                    values.put(key, value(read, key));
                } catch (IllegalArgumentException refused) {
                    each.put("refused", true);
                    values.remove(key);
                }
            }
            lines.add(mapper.writeValueAsString(each));
        }
        Files.writeString(path, "[" + String.join(",\n", lines) + "]\n");
        Map<String, String> defaults = mapper.readValue(Path.of(files[1]).toFile(), TreeMap.class);
        for (String key : defaults.keySet()) {
            try {
                defaults.put(key, value(new ServiceConfiguration(), key));
            } catch (NoSuchFieldException newer) {
                System.err.println(key + " is not known to this version");
            }
        }
        mapper.writerWithDefaultPrettyPrinter().writeValue(Path.of(files[1]).toFile(), defaults);
    }

    static String value(ServiceConfiguration read, String key) throws Exception {
        var field = ServiceConfiguration.class.getDeclaredField(key);
        field.setAccessible(true);
        return String.valueOf(field.get(read));
    }
}
