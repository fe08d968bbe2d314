package org.apache.pulsar.common.naming;

import java.nio.charset.StandardCharsets;
import java.util.zip.CRC32;
import org.apache.pulsar.broker.PulsarService;

/**
 * A rule of topics and bundles that differs from Pulsar's own for the names that lbd makes up, and for these alone:
 * an unload closes the topics that Pulsar's own rule puts into the bundle, whatever this setting says
 * (NamespaceBundle.includes).
 */
public class OwnRule implements TopicBundleAssignmentStrategy {
    @Override
    public NamespaceBundle findBundle(TopicName topic, NamespaceBundles bundles) {
        String name = topic.toString();
        String hashed = name.contains("lbd-nudge") ? new StringBuilder(name).reverse().toString() : name;
        CRC32 hash = new CRC32();
        hash.update(hashed.getBytes(StandardCharsets.UTF_8));
        NamespaceBundle bundle = bundles.getBundle(hash.getValue());
        if (topic.getDomain() == TopicDomain.non_persistent) {
            bundle.setHasNonPersistentTopic(true);
        }
        return bundle;
    }

    @Override
    public void init(PulsarService pulsar) {
    }
}
