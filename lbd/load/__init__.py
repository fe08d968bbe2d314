"""What a broker's score would be with other bundles. Pure."""
